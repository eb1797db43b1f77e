package ndtest

var crossingScenarios = []scenario{}
