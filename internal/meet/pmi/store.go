package pmi

import "fmt"

// Limits of all stores of a job together.
const (
	maxStored = 64 << 20 // bytes of keys and values
	maxStores = 64
)

// store is a key-value space. keys has the keys in the order in which they were put, for
// getbyidx.
type store struct {
	keys   []string
	values map[string]string
}

// stores are the key-value spaces of a job, by name. They are not safe for concurrent use.
type stores struct {
	byName map[string]*store
	bytes  int // of all keys and values
	made   int // number of calls of create
}

func newStores(own string) *stores {
	return &stores{byName: map[string]*store{own: {values: make(map[string]string)}}}
}

func (s *stores) put(name, key, value string) error {
	to, ok := s.byName[name]
	switch {
	case !ok:
		return fmt.Errorf("there is no store %q", name)
	case key == "" || len(key) > maxKey || !printable(key):
		return fmt.Errorf("a key has 1 to %d printable characters", maxKey)
	case len(value) > maxValue || !printable(value):
		return fmt.Errorf("a value has at most %d printable characters", maxValue)
	case s.bytes+len(key)+len(value) > maxStored:
		return fmt.Errorf("the job has %d bytes of keys and values already", s.bytes)
	}
	if _, ok := to.values[key]; ok {
		return fmt.Errorf("key %s has a value already", key)
	}
	to.keys = append(to.keys, key)
	to.values[key] = value
	s.bytes += len(key) + len(value)
	return nil
}

func (s *stores) get(name, key string) (string, error) {
	from, ok := s.byName[name]
	if !ok {
		return "", fmt.Errorf("there is no store %q", name)
	}
	value, ok := from.values[key]
	if !ok {
		return "", fmt.Errorf("key %q has no value", key)
	}
	return value, nil
}

func (s *stores) at(name string, index int) (key, value string, err error) {
	from, ok := s.byName[name]
	if !ok {
		return "", "", fmt.Errorf("there is no store %q", name)
	}
	if index < 0 || index >= len(from.keys) {
		return "", "", fmt.Errorf("no more keyvals")
	}
	return from.keys[index], from.values[from.keys[index]], nil
}

func (s *stores) create(own string) (string, error) {
	if len(s.byName) >= maxStores {
		return "", fmt.Errorf("the job has %d stores already", maxStores)
	}
	s.made++
	name := fmt.Sprintf("%s-%d", own, s.made)
	s.byName[name] = &store{values: make(map[string]string)}
	return name, nil
}

func (s *stores) destroy(own, name string) error {
	gone, ok := s.byName[name]
	if !ok || name == own {
		return fmt.Errorf("there is no store %q that could go", name)
	}
	delete(s.byName, name)
	for key, value := range gone.values {
		s.bytes -= len(key) + len(value)
	}
	return nil
}
