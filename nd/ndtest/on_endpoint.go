package ndtest

var endpointScenarios = []scenario{}
