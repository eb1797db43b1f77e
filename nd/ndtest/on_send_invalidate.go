package ndtest

var sendInvalidateScenarios = []scenario{}
