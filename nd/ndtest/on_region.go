package ndtest

var regionScenarios = []scenario{}
