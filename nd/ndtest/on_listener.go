package ndtest

var listenerScenarios = []scenario{}
