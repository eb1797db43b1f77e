package ndtest

var notifyScenarios = []scenario{}
