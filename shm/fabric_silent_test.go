package shm

import (
	"testing"

	"github.com/softnd/softnd/internal/meet/unixsock"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

// roleSilent makes more connections to a fabric of user 0 than a member keeps, and sends nothing.
var roleSilent = proctest.Role("silent", func(self *proctest.Self) error {
	var conns []*unixsock.Conn
	for range 3 * fabricConns {
		c, err := unixsock.Dial(fabricAddress(0, self.Args[0]))
		if err != nil {
			return err
		}
		defer c.Close()
		conns = append(conns, c)
	}
	if _, err := conns[fabricConns].Read(make([]byte, 1)); !isTransient(err) { // when the member has accepted as many later ones, or has its limit for other users
		return err
	}
	self.Say("silent")
	_, err := self.Hear()
	return err
})

// Silent connections of another user do not end the connection of a joiner of the own user.
func TestSilentOtherUserEndsNoJoiner(t *testing.T) {
	withoutReplyTimeout(t)
	name := fabricName(t)
	stranger := asOtherUser(t, roleSilent, name)
	openTest(t, name)
	own := dialTest(t, name)
	silent := proctest.Start(t, stranger)
	silent.Expect("silent")
	if _, err := own.Write(ownRecord().encode()); err != nil {
		t.Fatal(err)
	}
	record, files, err := readFabric(own)
	closeAll(files)
	if err != nil || len(files) != 2 {
		t.Fatalf("a record of %d bytes with %d descriptors: %v", len(record), len(files), err)
	}
	silent.Say("end")
	silent.Wait()
}
