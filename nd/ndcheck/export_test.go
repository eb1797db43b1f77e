package ndcheck

// Sizes returns how many endpoints, requests, and open objects the checker knows.
func (p *Provider) Sizes() (endpoints, requests, objects int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.adapters {
		objects += len(a.open)
	}
	return len(p.endpoints), len(p.requests) + len(p.sinks) + len(p.windows), objects
}
