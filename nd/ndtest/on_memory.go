package ndtest

var memoryScenarios = []scenario{}
