package ndtest

var bindScenarios = []scenario{}
