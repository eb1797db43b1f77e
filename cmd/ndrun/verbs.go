package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/kballard/go-shellquote"

	"github.com/softnd/softnd/cmd/internal/verbs"
)

func setVerbs(c *command, mode string) (err error) {
	c.verbs, err = verbs.Find(mode)
	return err
}

// printVerbsEnv prints commands for a shell.
func printVerbsEnv(_ *command, mode string) error {
	v, err := verbs.Find(mode)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, entry := range v.Env(os.Environ()) {
		fmt.Fprintf(&b, "export %s\n", shellquote.Join(entry))
	}
	return text(b.String())
}
