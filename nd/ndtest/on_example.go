package ndtest

var exampleScenarios = []scenario{}
