package ndtest

var overflowScenarios = []scenario{}
