package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

// errWant stands for "not what Key.Type says", which Parse then quotes.
var errWant = errors.New("not allowed")

// Error holds everything that is wrong with a file. It prints as one line.
type Error struct {
	File     string
	Problems []string
}

func (e *Error) Error() string {
	return oneLine.Replace(e.File + ": " + strings.Join(e.Problems, "; "))
}

var oneLine = strings.NewReplacer("\n", `\n`, "\r", `\r`)

// Parse reads and checks a whole file. Name is only used in messages. The error is an *Error.
func Parse(name string, data []byte, host Host) (*Config, error) {
	bad := &Error{File: name}
	complain := func(format string, args ...any) { bad.Problems = append(bad.Problems, fmt.Sprintf(format, args...)) }

	properties, err := readProperties(string(data))
	if err != nil {
		complain("%v", err)
		return nil, bad
	}
	seen := map[string]int{}
	values := map[string]property{}
	for _, p := range properties {
		if first, ok := seen[p.key]; ok {
			complain("line %d: %s is set again (first on line %d)", p.line, p.key, first)
			continue
		}
		seen[p.key] = p.line
		if !known(p.key) {
			complain("line %d: %s=%s: unknown key%s", p.line, p.key, p.value, suggest(p.key))
			continue
		}
		if p.value, err = expand(strings.TrimRight(p.value, " \t"), host.LookupEnv); err != nil {
			complain("line %d: %s=%s: %v", p.line, p.key, p.value, err)
			continue
		}
		values[p.key] = p
	}

	c := &Config{File: name}
	for _, k := range keys {
		p, ok := values[k.Name]
		switch {
		case ok && p.value != "":
			if err := k.set(c, p.value); err != nil {
				complain("line %d: %s=%s: want %s%s", p.line, k.Name, p.value, k.Type, detail(err))
			}
		case k.Default != "":
			if err := k.set(c, k.Default); err != nil {
				panic(fmt.Sprintf("default of %s: %v", k.Name, err))
			}
		case k.Required && seen[k.Name] == 0:
			complain("%s is missing: want %s", k.Name, k.Type)
		case k.Required && ok:
			complain("line %d: %s is empty: want %s", p.line, k.Name, k.Type)
		}
	}
	if len(bad.Problems) == 0 {
		c.finish(host, complain)
	}
	if len(bad.Problems) > 0 {
		return nil, bad
	}
	return c, nil
}

// finish checks what concerns several keys, and fills what follows from others.
func (c *Config) finish(host Host, complain func(string, ...any)) {
	if c.LogDir == "" {
		complain("log.dirs is missing: want one absolute path")
	}
	if len(c.StaticVoters) == 0 && len(c.Bootstrap) == 0 {
		complain("controller.quorum.bootstrap.servers is missing: want HOST:PORT,… (or controller.quorum.voters)")
	}
	if c.ObserverOnly {
		if _, ok := c.StaticVoters.ByID(c.NodeID); ok {
			complain("observer.only=true: node.id=%d is in controller.quorum.voters: want false, or another id", c.NodeID)
		}
	}
	if c.ObserverOnly && c.AutoJoin {
		complain("controller.quorum.auto.join.enable=true: observer.only=true keeps this member from ever becoming a voter: want only one of them")
	}
	if c.MaxRequestBytes < c.MaxBatchBytes+64<<10 {
		complain("socket.request.max.bytes=%d: want at least message.max.bytes plus 65536, %d", c.MaxRequestBytes, c.MaxBatchBytes+64<<10)
	}
	if c.MaxQueuedBytes < int64(c.MaxRequestBytes) {
		complain("queued.max.request.bytes=%d: want at least socket.request.max.bytes, %d", c.MaxQueuedBytes, c.MaxRequestBytes)
	}
	if c.FetchMaxWait >= c.RequestTimeout {
		complain("controller.quorum.fetch.max.wait.ms=%d: want less than controller.quorum.request.timeout.ms, %d", c.FetchMaxWait.Milliseconds(), c.RequestTimeout.Milliseconds())
	}
	if c.FetchMaxWait >= c.FetchTimeout { // else it would give up a leader that has nothing new
		complain("controller.quorum.fetch.max.wait.ms=%d: want less than controller.quorum.fetch.timeout.ms, %d", c.FetchMaxWait.Milliseconds(), c.FetchTimeout.Milliseconds())
	}
	derive := len(c.Bootstrap) == 0
	for i, v := range c.StaticVoters {
		e := &v.Endpoints[0]
		e.Name = c.ControllerListener
		if derive {
			c.Bootstrap = append(c.Bootstrap, raft.Destination{ID: raft.NodeID(-2 - i), Host: e.Host, Port: e.Port})
		}
	}
	c.checkListeners(complain)
	c.advertise(host, complain)
}

func (c *Config) checkListeners(complain func(string, ...any)) {
	allowed := []string{c.ControllerListener, Client, Admin, Health}
	for _, l := range c.Listeners {
		if !slices.Contains(allowed, l.Name) {
			complain("listeners=%s://%s: want only the names %s", l.Name, hostPort(l), strings.Join(allowed, ", "))
		}
	}
	if _, ok := c.Listener(c.ControllerListener); !ok {
		complain("listeners has no %s://HOST:PORT: want one for controller.listener.names", c.ControllerListener)
	}
	for _, a := range c.Advertised {
		if _, ok := c.Listener(a.Name); !ok {
			complain("advertised.listeners=%s://%s: want only names that listeners has", a.Name, hostPort(a))
		}
	}
}

// advertise settles the address others use for each listener: advertised.listeners, else the address bound, else the
// own entry in controller.quorum.voters, else the host's name; never a wildcard (KAFKA-18281, KAFKA-20380).
func (c *Config) advertise(host Host, complain func(string, ...any)) {
	named := c.Advertised
	c.Advertised = nil
	for _, l := range c.Listeners {
		a, ok := raft.Find(named, l.Name)
		if ok && wildcard(a.Host) {
			complain("advertised.listeners=%s://%s: want a host that others can reach, not a wildcard", a.Name, hostPort(a))
		}
		if !ok {
			a = l
			if self, static := c.StaticVoters.ByID(c.NodeID); wildcard(a.Host) && static {
				a.Host = self.Endpoints[0].Host
			}
			if wildcard(a.Host) {
				a.Host = host.Hostname
			}
			if a.Host == "" {
				complain("listeners=%s://%s binds every address: want advertised.listeners to say how others reach it", l.Name, hostPort(l))
			}
		}
		c.Advertised = append(c.Advertised, a)
	}
}

func wildcard(host string) bool {
	if host == "" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsUnspecified()
}

var reference = regexp.MustCompile(`\$\{([^}]*)\}`)

// expand replaces ${env:NAME}. What it puts in is not looked at again.
func expand(value string, lookup func(string) (string, bool)) (string, error) {
	var err error
	out := reference.ReplaceAllStringFunc(value, func(m string) string {
		name, ok := strings.CutPrefix(m[2:len(m)-1], "env:")
		if !ok || name == "" {
			err = fmt.Errorf("%s: want ${env:NAME}", m)
			return m
		}
		if lookup != nil {
			if v, ok := lookup(name); ok {
				return v
			}
		}
		err = fmt.Errorf("environment variable %s is not set", name)
		return m
	})
	if err != nil {
		return value, err
	}
	return out, nil
}

func detail(err error) string {
	if err == nil || errors.Is(err, errWant) {
		return ""
	}
	return " (" + err.Error() + ")"
}

// suggest names the known key closest to an unknown one, if it is close.
func suggest(name string) string {
	best, bestDistance := "", 4
	for _, k := range keys {
		if d := distance(name, k.Name); d < bestDistance {
			best, bestDistance = k.Name, d
		}
	}
	if best == "" {
		return ""
	}
	return ": want " + best + "?"
}

// distance is Levenshtein's.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// clusterID, listenerName, topicName and oneDir tell whether a value has the form of its name.
func clusterID(s string) bool {
	for _, r := range s {
		if r <= ' ' || r > '~' {
			return false
		}
	}
	return len(s) >= 1 && len(s) <= 128
}

var (
	listenerName = regexp.MustCompile(`^[A-Z][A-Z0-9_-]{0,63}$`).MatchString
	topicChars   = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`).MatchString
)

func topicName(s string) bool { return topicChars(s) && s != "." && s != ".." }

func oneDir(s string) bool { return path.IsAbs(s) && !strings.Contains(s, ",") }

// list splits at commas and trims; an empty element is an error.
func list(value string) ([]string, error) {
	parts := strings.Split(value, ",")
	for i, p := range parts {
		if parts[i] = strings.TrimSpace(p); parts[i] == "" {
			return nil, errors.New("an element is empty")
		}
	}
	return parts, nil
}

func parseListeners(value string) ([]raft.Endpoint, error) {
	parts, err := list(value)
	if err != nil {
		return nil, err
	}
	var out []raft.Endpoint
	for _, p := range parts {
		name, address, ok := strings.Cut(p, "://")
		if !ok || !listenerName(name) {
			return nil, fmt.Errorf("%q is no NAME://HOST:PORT", p)
		}
		host, port, err := ParseHostPort(address)
		if err != nil {
			return nil, err
		}
		if _, double := raft.Find(out, name); double {
			return nil, fmt.Errorf("%s appears twice", name)
		}
		for _, o := range out {
			if port != 0 && o.Port == port && o.Host == host {
				return nil, fmt.Errorf("%s and %s are on the same address", o.Name, name)
			}
		}
		out = append(out, raft.Endpoint{Name: name, Host: host, Port: port})
	}
	return out, nil
}

func parseServers(value string) ([]raft.Destination, error) {
	parts, err := list(value)
	if err != nil {
		return nil, err
	}
	var out []raft.Destination
	for i, p := range parts {
		host, port, err := ParseHostPort(p)
		if err != nil {
			return nil, err
		}
		if wildcard(host) || port == 0 {
			return nil, fmt.Errorf("%q cannot be reached", p)
		}
		out = append(out, raft.Destination{ID: raft.NodeID(-2 - i), Host: host, Port: port})
	}
	return out, nil
}

func parseVoters(value string) (raft.VoterSet, error) {
	parts, err := list(value)
	if err != nil {
		return nil, err
	}
	var voters []raft.Voter
	for _, p := range parts {
		id, address, ok := strings.Cut(p, "@")
		n, err := strconv.ParseInt(id, 10, 32)
		if !ok || err != nil || n < 0 {
			return nil, fmt.Errorf("%q is no ID@HOST:PORT", p)
		}
		host, port, err := ParseHostPort(address)
		if err != nil {
			return nil, err
		}
		if wildcard(host) || port == 0 {
			return nil, fmt.Errorf("%q cannot be reached", p)
		}
		voters = append(voters, raft.Voter{
			Key:       raft.ReplicaKey{ID: raft.NodeID(n)},
			Endpoints: []raft.Endpoint{{Name: Controller, Host: host, Port: port}},
		})
	}
	return raft.NewVoterSet(voters...)
}

func parseProtocolMap(_ *Config, value string) error {
	parts, err := list(value)
	if err != nil {
		return err
	}
	for _, p := range parts {
		name, protocol, ok := strings.Cut(p, ":")
		if !ok || !listenerName(name) || protocol != "PLAINTEXT" {
			return fmt.Errorf("%q is not supported", p)
		}
	}
	return nil
}

// ParseHostPort splits HOST:PORT; IPv6 addresses stand in brackets, an empty host is allowed.
func ParseHostPort(s string) (host string, port uint16, err error) {
	host, p, err := net.SplitHostPort(s)
	if err != nil {
		return "", 0, fmt.Errorf("%q is no HOST:PORT", s)
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("%q: port %q is not from 0 to 65535", s, p)
	}
	if strings.ContainsAny(host, " /@,") {
		return "", 0, fmt.Errorf("%q: %q is no host", s, host)
	}
	return host, uint16(n), nil
}

func hostPort(e raft.Endpoint) string { return net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))) }
