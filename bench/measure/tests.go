package measure

// Tests returns all measurements, in the order in which people see them.
func Tests() []Test {
	return []Test{
		BindInvalidate(),
		MRLat(),
		MRRate(),
		ConnectRate(),
		Barrier(),
		Wakeup(),
		Oversubscribed(),
		Blocked(),
		ArenaMemory(),
	}
}
