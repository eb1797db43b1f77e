package ndtest

var invalidateScenarios = []scenario{}
