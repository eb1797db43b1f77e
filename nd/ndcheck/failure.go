package ndcheck

import (
	"fmt"
	"strings"
	"time"

	"github.com/softnd/softnd/nd"
)

// failed explains why a request has failed, as far as the program is the reason.
func (c *checker) failed(ep *endpoint, r *request, res nd.Result) {
	status := strings.TrimPrefix(res.Status.Error(), "nd: ")
	about := []object{ep}
	if r.window != nil {
		about = append(about, r.window)
	}
	f := Finding{Site: r.site, What: fmt.Sprintf("%s failed: %s", r.name(), status)}
	switch {
	case res.Status == nd.AccessViolation:
		if c.explainLocal(&f, r) || c.explainRemote(&f, ep, r) {
			c.found(f, about...)
		}
	case res.Status == nd.RemoteError && r.invalidate:
		if c.explainRemote(&f, ep, r) {
			c.found(f, about...)
		}
	case res.Status == nd.IOTimeout && r.sendsMessage() && !c.faults:
		f.Rule = noReceive
		c.found(f, about...)
	case res.Status == nd.BufferOverflow && r.kind == nd.RequestReceive && !c.faults:
		f.Rule = tooLong
		c.found(f, about...)
	case res.Status == nd.InvalidDeviceRequest && r.isMisuse:
		f.Rule = boundTwice
		f.What = fmt.Sprintf("%s of %s on %s failed: %s", typeName(r.kind), r.window.name(), ep.name(), status)
		c.found(f, about...)
	}
}

// explainLocal completes f if an entry of r is the reason for its failure.
func (c *checker) explainLocal(f *Finding, r *request) bool {
	if r.inline() {
		return false
	}
	for i, e := range r.sge {
		if len(e.Buffer) == 0 {
			continue
		}
		t, ok, certain := c.journal.findToken(e.Token)
		at, n := addressOf(e.Buffer), uint64(len(e.Buffer))
		f.Address, f.Length = at, n
		entry := fmt.Sprintf("%s: entry %d has the %v", f.What, i, t)
		switch {
		case !ok && !certain:
			continue
		case !ok:
			f.Rule, f.What = unknownToken, fmt.Sprintf("%s: entry %d has the token %v", f.What, i, e.Token)
		case t.rank != c.rank || t.kind != localToken:
			f.Rule, f.What = swappedToken, entry
			f.setOther(t, "issued it")
		case !t.live:
			f.Rule, f.What = tokenInvalidated, entry
			f.setEnd(t)
		case t.length > 0 && !isWithin(at, n, t.base, t.length): // 0: pages that are not contiguous
			f.Rule, f.What = outsideRegion, entry+fmt.Sprintf(", which covers %d bytes", t.length)
			f.setOther(t, fmt.Sprintf("registered region %d", t.object))
		case r.isSink() && !t.write:
			f.Rule, f.What = missingRight, entry+", which lacks AllowLocalWrite"
			f.setOther(t, fmt.Sprintf("registered region %d", t.object))
		case t.adapter != r.owner.home().id:
			f.Rule, f.What = foreignToken, entry+fmt.Sprintf(" of adapter %d", t.adapter)
			f.setOther(t, "issued it")
		default:
			continue
		}
		return true
	}
	f.Address, f.Length = 0, 0
	return false
}

// explainRemote completes f if the remote token of r is the reason for its failure.
func (c *checker) explainRemote(f *Finding, ep *endpoint, r *request) bool {
	if r.token == 0 && !r.invalidate && !r.fetches() && r.kind != nd.RequestWrite {
		return false
	}
	t, ok, certain := c.journal.findToken(r.token)
	peer := int(ep.peerRank.Load()) - 1
	c.mu.Lock()
	link := ep.link
	certain = certain && !c.hasUnwatched
	c.mu.Unlock()
	f.Address, f.Length = r.address, r.size
	with := fmt.Sprintf("%s: it used the %v", f.What, t)
	if !r.invalidate && t.kind != localToken {
		with += fmt.Sprintf(" at offset %d", int64(r.address-t.base))
	}
	switch {
	case !ok && (!certain || peer < 0):
		return false // a process that is not watched may have issued it
	case !ok:
		f.Rule, f.What = unknownToken, fmt.Sprintf("%s: it used the token %v", f.What, r.token)
	case t.kind == localToken:
		f.Rule, f.What = swappedToken, with
		f.setOther(t, "issued it")
	case !t.live && r.posted >= t.ended:
		f.Rule, f.What = tokenInvalidated, with
		f.setEnd(t)
	case r.invalidate && t.kind == regionToken:
		f.Rule, f.What = foreignToken, with
		f.setOther(t, "issued it, and no message can invalidate it here")
	case r.invalidate && t.rank != peer:
		f.Rule, f.What = foreignToken, with
		f.setOther(t, "issued it for another connection")
	case r.invalidate:
		return false // the Receive may be the reason
	case !isWithin(r.address, r.size, t.base, t.length):
		f.Rule, f.What = outsideRange, with+fmt.Sprintf(", where %d bytes are granted", t.length)
		f.setOther(t, "granted the memory")
	case r.kind == nd.RequestRead && !t.read || r.kind == nd.RequestWrite && !t.write || r.isAtomic() && !t.atomic:
		f.Rule, f.What = missingRight, with
		f.setOther(t, "granted "+rightsText(t))
	case !t.live && !t.cut: // if it ended with the connection, the failure was the reason and not the effect
		f.Rule, f.What = revokedInFlight, with
		f.setEnd(t)
	case t.rank == peer && (t.link == 0 || link == 0 || t.link == link):
		return false
	default: // valid, but not here
		f.Rule, f.What = foreignToken, with
		f.setOther(t, "issued it for another connection")
	}
	return true
}

func rightsText(t tokenRecord) string {
	var rights []string
	for _, right := range []struct {
		granted bool
		text    string
	}{{t.read, "reading"}, {t.write, "writing"}, {t.atomic, "atomics"}} {
		if right.granted {
			rights = append(rights, right.text)
		}
	}
	switch len(rights) {
	case 0:
		return "no right"
	case 1:
		return rights[0] + " only"
	}
	return strings.Join(rights, " and ")
}

func (f *Finding) setOther(t tokenRecord, what string) {
	f.Other, f.OtherRank, f.OtherSite = what, t.rank, t.site
}

// setEnd says who ended the token of t, and when.
func (f *Finding) setEnd(t tokenRecord) {
	f.Other, f.OtherRank, f.OtherSite = fmt.Sprintf("ended the %v, %v before this report", t, time.Duration(now()-t.ended).Round(time.Microsecond)), t.endRank, t.endSite
}
