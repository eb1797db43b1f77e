package main

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/docker/go-units"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/nd/ndcheck"
	"github.com/softnd/softnd/shm"
)

const maxRanks = shm.MaxRanks

func setRanks(c *command, s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > maxRanks {
		return fmt.Errorf("want 1 to %d ranks", maxRanks)
	}
	c.app().ranks = n
	return nil
}

func setDir(c *command, s string) error {
	if s == "" {
		return errors.New("want a directory")
	}
	dir, err := filepath.Abs(s)
	if err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("%w: give an existing directory", reason(err))
	}
	if !info.IsDir() {
		return errors.New("not a directory: give an existing directory")
	}
	c.app().dir = dir
	return nil
}

func setEnv(c *command, s string) error {
	c.app().env = append(c.app().env, s)
	return checkVariable(s)
}

func setGlobalEnv(c *command, s string) error {
	c.env = append(c.env, s)
	return checkVariable(s)
}

// setExport sets Open MPI's -x. Open MPI passes a variable to ranks only with this option.
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

// afterListen is the value of --after for a program that starts when the one before it listens.
const afterListen = "listen"

func setAfter(c *command, s string) (err error) {
	p := c.app()
	p.after, p.delay = s, 0
	if s != afterListen {
		p.delay, err = parseDuration(s)
	}
	if err != nil || p.delay < 0 {
		err = errors.New("want listen, or a duration such as 2 (seconds) or 500ms")
	}
	return err
}

func checkVariable(s string) error {
	if name, _, _ := strings.Cut(s, "="); name == "" {
		return errors.New("name missing: want NAME=VALUE")
	}
	return nil
}

func setConfigFile(c *command, s string) error {
	if c.configFile != "" {
		return fmt.Errorf("configuration file %s is already given: give one, and none inside of it", c.configFile)
	}
	if s == "" {
		return errors.New("want a file")
	}
	c.configFile = s
	return nil
}

// setHosts accepts host lists of scripts for mpiexec if they name this host only.
func setHosts(_ *command, s string) error {
	own, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("read the name of this host: %w", err)
	}
	short, _, _ := strings.Cut(own, ".")
	for host := range strings.SplitSeq(s, ",") {
		name := host
		if bare, slots, ok := strings.Cut(host, ":"); ok { // number of ranks, in mpiexec's syntax
			if _, err := strconv.Atoi(slots); err == nil {
				name = bare
			}
		}
		ip, err := netip.ParseAddr(name)
		// The case of host names does not matter.
		if strings.EqualFold(name, "localhost") || strings.EqualFold(name, own) || strings.EqualFold(name, short) || err == nil && ip.IsLoopback() {
			continue
		}
		if first, domain, ok := strings.Cut(name, "."); ok && strings.EqualFold(first, short) && own == short {
			return fmt.Errorf("host %q: the name of this host is %s without a domain, so %s.%s may be another: want localhost or %s, or omit the option", name, own, first, domain, own)
		}
		return fmt.Errorf("host %q is not the local host: want localhost or %s, or omit the option", name, own)
	}
	return nil
}

// parseDuration parses a duration. As in mpiexec, a bare number is a number of seconds.
func parseDuration(s string) (time.Duration, error) {
	if seconds, err := strconv.ParseFloat(s, 64); err == nil && !math.IsNaN(seconds) && math.Abs(seconds) < math.MaxInt64/1e9 {
		return time.Duration(seconds * float64(time.Second)), nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, errors.New("want seconds or a duration such as 1m30s or 500ms")
	}
	return d, nil
}

func setTimeout(c *command, s string) (err error) {
	c.timeout, err = parseDuration(s)
	if err == nil && c.timeout <= 0 {
		err = errors.New("want a positive duration")
	}
	return err
}

func setOnDeath(c *command, s string) error {
	if s != "stop" && s != "continue" {
		return errors.New("want stop or continue")
	}
	c.goOn = s == "continue"
	return nil
}

func setHangAfter(c *command, s string) (err error) {
	c.hangAfter, err = parseDuration(s)
	if err == nil && c.hangAfter < shortestHang {
		err = fmt.Errorf("want %v or more, because ranks publish their state every 100ms", shortestHang)
	}
	return err
}

// shortestHang is the minimum of --hang-after.
const shortestHang = 500 * time.Millisecond

func setGrace(c *command, s string) error {
	d, err := parseDuration(s)
	if err == nil && d < 0 {
		err = errors.New("want 0 or more")
	}
	c.grace = max(d, 1) // 0 means the default
	return err
}

func setArenaSize(c *command, s string) error {
	size, err := units.RAMInBytes(s)
	if err != nil || size < 1 {
		return errors.New("want bytes or a size such as 512M or 4GiB")
	}
	c.arenaSize = uint64(size)
	return nil
}

// setIntegrity sets the variable that the ranks read, behind what -genv may have set.
func setIntegrity(c *command, _ string) error { return setGlobalEnv(c, softnd.EnvIntegrity+"=1") }

// setWeakOrder also sets the variable that the ranks read, behind what -genv may have set.
func setWeakOrder(c *command, s string) error {
	seed, err := strconv.ParseUint(s, 0, 64)
	if s == "random" {
		seed, err = uint64(rand.Uint32()), nil // short enough to be typed
	}
	if err != nil {
		return errors.New("want a number from 0 to 2^64-1, or random")
	}
	c.weakOrder = strconv.FormatUint(seed, 10)
	return setGlobalEnv(c, softnd.EnvWeakOrder+"="+c.weakOrder)
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

// acceptSilently accepts an option that asks for default behaviour.
func acceptSilently(*command, string) error { return nil }

// setCheck takes the format of the findings on standard output, or a file whose ending is the format, or "partial".
func setCheck(c *command, to string) error {
	c.watch = true
	switch to {
	case "":
		return nil
	case "partial":
		c.checkPartial = true
		return nil
	}
	c.checkReport = to
	switch format := strings.TrimPrefix(filepath.Ext(to), "."); {
	case to == "json" || to == "sarif":
		c.checkReport, c.checkSARIF = "-", to == "sarif"
	case format == "json" || format == "sarif":
		c.checkSARIF = format == "sarif"
	default:
		return errors.New("want json, sarif, partial, or a file with the ending .json or .sarif")
	}
	return nil
}

// setCheckIgnore adds rules. It also sets the variable that the ranks read.
func setCheckIgnore(c *command, list string) error {
	rules, err := ndcheck.ParseRules(list)
	if err != nil {
		return err
	}
	c.checkIgnore = append(c.checkIgnore, rules...)
	var all []string
	for _, r := range c.checkIgnore {
		all = append(all, r.ID)
	}
	return setGlobalEnv(c, softnd.EnvCheckIgnore+"="+strings.Join(all, ","))
}
