package ndtest

var connectScenarios = []scenario{}
