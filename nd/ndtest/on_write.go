package ndtest

var writeScenarios = []scenario{}
