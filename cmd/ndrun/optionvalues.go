package main

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/docker/go-units"

	"github.com/softnd/softnd/launcher"
)

const maxRanks = launcher.MaxRanks

func setRanks(c *command, s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > maxRanks {
		return fmt.Errorf("a job has 1 to %d ranks", maxRanks)
	}
	c.part().ranks = n
	return nil
}

func setDir(c *command, s string) error {
	if s == "" {
		return errors.New("name a directory")
	}
	dir, err := filepath.Abs(s)
	if err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("%w; name a directory that exists", reason(err))
	}
	if !info.IsDir() {
		return errors.New("it is no directory; name one")
	}
	c.part().dir = dir
	return nil
}

func setEnv(c *command, s string) error {
	c.part().env = append(c.part().env, s)
	return checkVariable(s)
}

func setGlobalEnv(c *command, s string) error {
	c.env = append(c.env, s)
	return checkVariable(s)
}

// setExport is Open MPI's -x. There it is needed for a variable to get to the ranks.
func setExport(c *command, s string) error {
	if !strings.Contains(s, "=") {
		value, ok := os.LookupEnv(s)
		if !ok {
			return checkVariable(s + "=")
		}
		s += "=" + value
	}
	return setEnv(c, s)
}

func checkVariable(s string) error {
	if name, _, _ := strings.Cut(s, "="); name == "" {
		return errors.New("it has no name: write NAME=VALUE")
	}
	return nil
}

func setConfigFile(c *command, s string) error {
	if c.configFile != "" {
		return fmt.Errorf("the programs already stand in %s: there can be one such file, outside of itself", c.configFile)
	}
	if s == "" {
		return errors.New("name a file")
	}
	c.configFile = s
	return nil
}

// setHosts takes what scripts for mpiexec say, as far as it is true here.
func setHosts(_ *command, s string) error {
	own, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("learn this host's name: %w", err)
	}
	short, _, _ := strings.Cut(own, ".")
	for host := range strings.SplitSeq(s, ",") {
		name := host
		if bare, slots, ok := strings.Cut(host, ":"); ok { // mpiexec's number of ranks there
			if _, err := strconv.Atoi(slots); err == nil {
				name = bare
			}
		}
		ip, err := netip.ParseAddr(name)
		if name == "localhost" || name == own || name == short || err == nil && ip.IsLoopback() {
			continue
		}
		return fmt.Errorf("%q is not this host, and all ranks run on it: name localhost or %s, or leave the option out", name, own)
	}
	return nil
}

// parseDuration reads a duration; a bare number is one of seconds, as in mpiexec.
func parseDuration(s string) (time.Duration, error) {
	if seconds, err := strconv.ParseFloat(s, 64); err == nil && !math.IsNaN(seconds) && math.Abs(seconds) < math.MaxInt64/1e9 {
		return time.Duration(seconds * float64(time.Second)), nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, errors.New("write seconds, or a duration such as 1m30s or 500ms")
	}
	return d, nil
}

func setTimeout(c *command, s string) (err error) {
	c.timeout, err = parseDuration(s)
	if err == nil && c.timeout <= 0 {
		err = errors.New("a job needs some time")
	}
	return err
}

func setHangAfter(c *command, s string) (err error) {
	c.hangAfter, err = parseDuration(s)
	if err == nil && c.hangAfter < shortestHang {
		err = fmt.Errorf("ranks tell ten times a second what they do: take %v or more", shortestHang)
	}
	return err
}

// shortestHang is the shortest time in which ranks can be seen to stand still.
const shortestHang = 500 * time.Millisecond

func setGrace(c *command, s string) error {
	d, err := parseDuration(s)
	if err == nil && d < 0 {
		err = errors.New("it cannot be negative")
	}
	c.grace = max(d, 1) // 0 stands for the default
	return err
}

func setArenaSize(c *command, s string) error {
	size, err := units.RAMInBytes(s)
	if err != nil || size < 1 {
		return errors.New("write bytes, or a size such as 512M or 4GiB")
	}
	c.arenaSize = uint64(size)
	return nil
}

func setReportBindings(c *command, _ string) error {
	c.reportBindings = true
	return nil
}

func setDryRun(c *command, _ string) error {
	c.dryRun = true
	return nil
}

func setStopped(c *command, s string) (err error) {
	c.stopped, err = parseRanks(s)
	return err
}

// setNothing accepts an option that asks for what is always so.
func setNothing(*command, string) error { return nil }
