package ndtest

var windowScenarios = []scenario{}
