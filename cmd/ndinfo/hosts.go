package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/softnd/softnd/internal/meet/bootstrap"
	"github.com/softnd/softnd/internal/meet/relayclient"
)

// hostsTimeout is how long ndinfo --hosts waits for the other ranks and hosts by default.
const hostsTimeout = time.Minute

// Names of the checks of ndinfo --hosts.
const (
	meetingCheck  = "meeting"
	nameCheck     = "name"
	addressCheck  = "address"
	secretCheck   = "secret"
	relayCheck    = "ndrelay"
	providerCheck = "provider"
	portCheck     = "port"
	routeCheck    = "route"
	clockCheck    = "clock"
	versionsCheck = "versions"
	linkCheck     = "link"
)

// hostSession is the part of one rank in ndinfo --hosts. The first rank of each host, its leader, makes the checks.
type hostSession struct {
	place  *bootstrap.Place // nil if the ranks could not meet
	hosts  *bootstrap.Hosts // nil if all ranks run on one host
	own    hostFacts
	checks []check
	probe  *probeServer // nil if there is none
}

// runHosts is ndinfo --hosts. It returns the exit status.
func runHosts(limit time.Duration, asJSON bool, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	s := &hostSession{}
	defer s.close()
	report := s.run(ctx)
	if report == nil {
		return 0 // another rank prints the report
	}
	if s.prints() {
		write := report.print
		if asJSON {
			write = report.printJSON
		}
		if err := write(stdout); err != nil {
			fmt.Fprintln(stderr, "ndinfo: write the report:", err)
			return 1
		}
	}
	if !report.Starts && (s.prints() || os.Getenv(bootstrap.EnvRoot) != "") {
		return 1 // a launcher would kill rank 0, whose report has not arrived, if another rank failed
	}
	return 0
}

// prints reports whether this rank prints the report: rank 0 does, or each leader if the hosts have not passed it their
// checks.
func (s *hostSession) prints() bool { return s.place == nil || s.place.Rank == 0 }

// run makes all checks. It returns nil in ranks that are not leaders.
func (s *hostSession) run(ctx context.Context) *hostsReport {
	meeting := s.meet(ctx)
	if s.place != nil && s.place.Local > 0 {
		if s.hosts != nil {
			_, _ = s.collect(ctx) // its leader reports an error
		}
		return nil
	}
	s.checks = append(s.checks, meeting)
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second) // the meeting may have used up the time
	s.checkOwn(own)
	cancel()
	if s.hosts == nil {
		return s.onlyOwn()
	}
	report, err := s.collect(ctx)
	if err != nil {
		s.checks = append(s.checks, bad(fail, meetingCheck, err.Error(), "see the lines of the other hosts; --timeout sets how long to wait for them"))
		s.release()
		return s.onlyOwn()
	}
	return report
}

// meet finds the place of this process as softnd.Init does.
func (s *hostSession) meet(ctx context.Context) check {
	if root := os.Getenv(bootstrap.EnvRoot); root != "" {
		c := checkRoot(ctx, root)
		s.checks = append(s.checks, c)
		if c.Status == fail {
			return bad(fail, meetingCheck, "not tried, because "+bootstrap.EnvRoot+" is not usable", "fix it first")
		}
	}
	p, err := bootstrap.Find(ctx, false)
	if err != nil {
		remedy := "follow the message; SOFTND_DEBUG=1 shows which launcher a rank has detected"
		if ctx.Err() != nil {
			remedy = "start the missing ranks, or see their messages: a firewall, another secret or another address keeps them away; --timeout sets how long to wait"
		}
		return bad(fail, meetingCheck, err.Error(), remedy)
	}
	s.place, s.hosts = p, p.Hosts
	switch {
	case p.Size == 1:
		return good(meetingCheck, "one rank: to check pairs of hosts, start ndinfo --hosts as the program of the job")
	case s.hosts == nil:
		return good(meetingCheck, "%d ranks, all on this host: such a job needs no relay", p.Size)
	}
	return good(meetingCheck, "rank %d of %d; host %d of %d; ranks at it: %d", p.Rank, p.Size, s.hosts.Number, s.hosts.Count, len(s.hosts.Ranks(s.hosts.Number)))
}

// release gives up the place, as a rank that ends without the others.
func (s *hostSession) release() {
	_ = s.place.HangUp(nil)
	_ = s.place.Arena.Close()
	s.place = nil
}

// close ends what the checks have started.
func (s *hostSession) close() {
	s.probe.close()
	if s.place != nil {
		_ = s.place.Leave() // the report is complete
		_ = s.place.Arena.Close()
	}
}

// onlyOwn returns the report of this host alone.
func (s *hostSession) onlyOwn() *hostsReport {
	r := &hostsReport{Hosts: []hostFacts{s.own}, Checks: s.checks}
	for i := range r.Checks {
		r.Checks[i].Host = s.own.Name
	}
	r.conclude()
	return r
}

// collect makes the checks of pairs of hosts, and returns the checks of all hosts. All ranks call it.
func (s *hostSession) collect(ctx context.Context) (*hostsReport, error) {
	report, err := s.exchange(ctx)
	if err == nil {
		_ = s.hosts.Barrier(ctx) // rank 0 must not leave while others read; its leaving may end this call, too
	}
	return report, err
}

// exchange is collect without the wait for the other ranks.
func (s *hostSession) exchange(ctx context.Context) (*hostsReport, error) {
	isLeader := s.place.Local == 0
	all, err := gatherAs(ctx, s.hosts, "facts", s.own)
	if err != nil {
		return nil, err
	}
	if isLeader {
		s.checks = append(s.checks, s.checkPairs(ctx, all)...)
	}
	checks, err := gatherAs(ctx, s.hosts, "checks", s.checks)
	if err != nil {
		return nil, err
	}
	r := &hostsReport{Hosts: all}
	labels := labelsOf(all)
	r.add(labels, checks)
	if r.conclude(); !r.Starts { // the relays would fail for the same reason
		return r, nil
	}
	links, err := s.checkLinks(ctx, isLeader)
	if err != nil {
		return nil, err
	}
	r.add(labels, links)
	r.conclude()
	return r, nil
}

// checkLinks starts the relays of all hosts as softnd.Init does, and lets them connect.
func (s *hostSession) checkLinks(ctx context.Context, isLeader bool) ([][]check, error) {
	type announcement struct{ Relay, Error string }
	var own announcement
	var relay *relayclient.Relay
	if isLeader {
		var err error
		relay, err = relayclient.Start(ctx, s.place.Arena.File(), relayclient.Config{Job: s.hosts.Job, Secret: s.hosts.Secret,
			Host: s.hosts.Number, Hosts: s.hosts.Count, Address: s.own.Address, Hidden: bootstrap.EnvSecret})
		if err != nil {
			own.Error = err.Error()
		} else {
			own.Relay = relay.Control
			defer relay.Close() // after all others have been connected
		}
	}
	all, err := gatherAs(ctx, s.hosts, "relays", own)
	if err != nil {
		return nil, err
	}
	var failed error
	relays := make([]string, len(all))
	for host, a := range all {
		relays[host] = a.Relay
		if a.Error != "" {
			failed = fmt.Errorf("the relay of host %d has not started", host)
		}
	}
	if own.Error != "" {
		failed = errors.New(own.Error)
	}
	if failed == nil && isLeader {
		failed = relay.Connect(ctx, relays)
	}
	c := good(linkCheck, "its relay is connected with those of all other hosts, and frames pass in both directions")
	if failed != nil {
		c = bad(fail, linkCheck, failed.Error(), "let the hosts reach all of each other's ports, and see the lines of ndrelay on standard error")
	}
	return gatherAs(ctx, s.hosts, "links", []check{c})
}

// partSize is the length of a part of a text in bytes. Escaped, it fits into a value of PMI.
const partSize = 300

// maxParts limits the length of a text that another host passes.
const maxParts = 1000

// gather passes a text of each host's leader to all ranks, indexed by host. All ranks call it with the same name.
func gather(ctx context.Context, h *bootstrap.Hosts, name, text string) ([]string, error) {
	counts, err := h.Share(ctx, name, strconv.Itoa((len(text)+partSize-1)/partSize))
	if err != nil {
		return nil, err
	}
	most := 0
	for host, count := range counts {
		n, err := strconv.Atoi(count)
		if err != nil || n < 0 || n > maxParts {
			return nil, fmt.Errorf("%s of host %d: %.20q parts: want 0 to %d", name, host, count, maxParts)
		}
		most = max(most, n)
	}
	all := make([]string, len(counts))
	for part := range most {
		own := text[min(len(text), part*partSize):min(len(text), (part+1)*partSize)]
		parts, err := h.Share(ctx, fmt.Sprintf("%s-%d", name, part), own+".") // a value of PMI is not empty
		if err != nil {
			return nil, err
		}
		for host, p := range parts {
			if p == "" {
				return nil, fmt.Errorf("%s of host %d: part %d is empty", name, host, part)
			}
			all[host] += p[:len(p)-1]
		}
	}
	return all, nil
}

// gatherAs is gather for values that JSON can hold.
func gatherAs[T any](ctx context.Context, h *bootstrap.Hosts, name string, own T) ([]T, error) {
	b, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	texts, err := gather(ctx, h, name, string(b))
	if err != nil {
		return nil, err
	}
	all := make([]T, len(texts))
	for host, text := range texts {
		if err := json.Unmarshal([]byte(text), &all[host]); err != nil {
			return nil, fmt.Errorf("%s of host %d: %w", name, host, err)
		}
	}
	return all, nil
}
