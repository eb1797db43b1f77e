package ndtest

var queueScenarios = []scenario{}
