package ndtest

var connectorScenarios = []scenario{}
