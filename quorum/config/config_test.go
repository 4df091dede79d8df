package config

import (
	"errors"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

var update = flag.Bool("update", false, "write the golden files anew")

// minimal is the smallest file that is accepted.
const minimal = `node.id=1
log.dirs=/var/lib/quorum
listeners=CONTROLLER://q-1:9093
controller.quorum.bootstrap.servers=q-0:9093,q-1:9093
`

func parse(t *testing.T, data string) *Config {
	t.Helper()
	c, err := Parse("quorum.properties", []byte(data), Host{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDefaults(t *testing.T) {
	want := &Config{
		File: "quorum.properties", NodeID: 1,
		Listeners:          []raft.Endpoint{{Name: "CONTROLLER", Host: "q-1", Port: 9093}},
		Advertised:         []raft.Endpoint{{Name: "CONTROLLER", Host: "q-1", Port: 9093}},
		ControllerListener: "CONTROLLER",
		Bootstrap:          []raft.Destination{{ID: -2, Host: "q-0", Port: 9093}, {ID: -3, Host: "q-1", Port: 9093}},
		LogDir:             "/var/lib/quorum", SegmentBytes: 1 << 30, SegmentAge: 7 * 24 * time.Hour, ReserveBytes: 64 << 20, BallastBytes: 8<<20 + 64<<10, LockTimeout: 30 * time.Second,
		SnapshotBytes: 20 << 20, SnapshotInterval: time.Hour, RetentionBytes: 100 << 20, Retention: 7 * 24 * time.Hour, SnapshotMaxBytes: 1 << 20,
		ElectionTimeout: time.Second, ElectionBackoffMax: time.Second, FetchTimeout: 2 * time.Second, FetchMaxBytes: 1 << 20,
		FetchMaxWait: 500 * time.Millisecond, RequestTimeout: 2 * time.Second, RetryBackoff: 20 * time.Millisecond,
		ShutdownTimeout: 5 * time.Second, HandoffMaxPause: 250 * time.Millisecond, HandoffCatchUpTimeout: 10 * time.Second,
		TopicMode: Keyed, TopicName: "__cluster_metadata", TopicID: raft.UUID{15: 1}, ReadReplicas: ReadRack,
		ProducerIDExpiry: 24 * time.Hour, DeleteRetention: 24 * time.Hour, MaxPendingAppends: 1000,
		MaxBatchBytes: 8 << 20, MaxRequestBytes: 8<<20 + 64<<10, MaxQueuedBytes: 64 << 20, MaxConnections: 1000, MaxConnectionsIP: 64,
		MaxConnectionRate: 200, MaxConnectionsIdle: 10 * time.Minute, MaxObservers: 128, LogLevel: "info", LogFormat: "text",
	}
	if diff := cmp.Diff(want, parse(t, minimal)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestB17BadValues: one line that names file, key, value and what is allowed; and all problems of a file at once.
func TestB17BadValues(t *testing.T) {
	for _, test := range []struct{ name, data, want string }{
		{"unknown key", minimal + "fetch.timeout.ms=1", "quorum.properties: line 5: fetch.timeout.ms=1: unknown key"},
		{"misspelt key", minimal + "controller.quorum.fetch.timeout.m=1", "quorum.properties: line 5: controller.quorum.fetch.timeout.m=1: unknown key: want controller.quorum.fetch.timeout.ms?"},
		{"missing keys", "", "quorum.properties: node.id is missing: want an integer from 0 to 2147483647; listeners is missing: want NAME://HOST:PORT,… with names among the controller listener's, CLIENT, ADMIN and HEALTH"},
		{"missing directory", strings.Replace(minimal, "log.dirs", "#", 1), "quorum.properties: log.dirs is missing: want one absolute path"},
		{"missing bootstrap", strings.Replace(minimal, "controller.quorum.b", "#", 1), "quorum.properties: controller.quorum.bootstrap.servers is missing: want HOST:PORT,… (or controller.quorum.voters)"},
		{"empty required key", strings.Replace(minimal, "node.id=1", "node.id=", 1), "quorum.properties: line 1: node.id is empty: want an integer from 0 to 2147483647"},
		{"negative timeout", minimal + "controller.quorum.fetch.timeout.ms=-1", "quorum.properties: line 5: controller.quorum.fetch.timeout.ms=-1: want milliseconds from 1 to 2147483647"},
		{"no number", minimal + "max.connections=many", "quorum.properties: line 5: max.connections=many: want an integer from 1 to 1000000"},
		{"no boolean", minimal + "observer.only=yes", "quorum.properties: line 5: observer.only=yes: want true or false"},
		{"no such mode", minimal + "topic.mode=compact", "quorum.properties: line 5: topic.mode=compact: want keyed or opaque"},
		{"bad topic id", minimal + "topic.id=AAAAAAAAAAAAAAAAAAAAAA", "quorum.properties: line 5: topic.id=AAAAAAAAAAAAAAAAAAAAAA: want 22 characters of base64url, not all zero"},
		{"relative path", strings.Replace(minimal, "/var/lib", "lib", 1), "quorum.properties: line 2: log.dirs=lib/quorum: want one absolute path"},
		{"two directories", strings.Replace(minimal, "/var/lib/quorum", "/a,/b", 1), "quorum.properties: line 2: log.dirs=/a,/b: want one absolute path"},
		{"a key twice", minimal + "node.id=2", "quorum.properties: line 5: node.id is set again (first on line 1)"},
		{"unknown listener", minimal + "advertised.listeners=PLAINTEXT://q-1:1", "quorum.properties: advertised.listeners=PLAINTEXT://q-1:1: want only names that listeners has"},
		{"listener of no use", strings.Replace(minimal, "9093\n", "9093,SSL://q-1:1\n", 1), "quorum.properties: listeners=SSL://q-1:1: want only the names CONTROLLER, CLIENT, ADMIN, HEALTH"},
		{"listener twice", strings.Replace(minimal, "listeners=", "listeners=CONTROLLER://a:1,", 1), "quorum.properties: line 3: listeners=CONTROLLER://a:1,CONTROLLER://q-1:9093: want NAME://HOST:PORT,… with names among the controller listener's, CLIENT, ADMIN and HEALTH (CONTROLLER appears twice)"},
		{"no controller listener", strings.Replace(minimal, "CONTROLLER:", "CLIENT:", 1), "quorum.properties: listeners has no CONTROLLER://HOST:PORT: want one for controller.listener.names"},
		{"bad port", strings.Replace(minimal, "q-0:9093", "q-0:99999", 1), `quorum.properties: line 4: controller.quorum.bootstrap.servers=q-0:99999,q-1:9093: want HOST:PORT,… ("q-0:99999": port "99999" is not from 0 to 65535)`},
		{"bootstrap to nowhere", strings.Replace(minimal, "q-0:9093", "0.0.0.0:9093", 1), `quorum.properties: line 4: controller.quorum.bootstrap.servers=0.0.0.0:9093,q-1:9093: want HOST:PORT,… ("0.0.0.0:9093" cannot be reached)`},
		{"bad voters", minimal + "controller.quorum.voters=1@a:1,1@b:1", "quorum.properties: line 5: controller.quorum.voters=1@a:1,1@b:1: want ID@HOST:PORT,… (voter set: node id 1 appears twice)"},
		{"security", minimal + "listener.security.protocol.map=CONTROLLER:SSL", `quorum.properties: line 5: listener.security.protocol.map=CONTROLLER:SSL: want NAME:PLAINTEXT,… ("CONTROLLER:SSL" is not supported)`},
		{"unset variable", minimal + "broker.rack=${env:RACK}", "quorum.properties: line 5: broker.rack=${env:RACK}: environment variable RACK is not set"},
		{"other reference", minimal + "broker.rack=${file:/a:b}", "quorum.properties: line 5: broker.rack=${file:/a:b}: ${file:/a:b}: want ${env:NAME}"},
		{"observer that would vote", minimal + "observer.only=true\ncontroller.quorum.auto.join.enable=true", "quorum.properties: controller.quorum.auto.join.enable=true: observer.only=true keeps this member from ever becoming a voter: want only one of them"},
		{"observer that votes", minimal + "observer.only=true\ncontroller.quorum.voters=1@a:1", "quorum.properties: observer.only=true: node.id=1 is in controller.quorum.voters: want false, or another id"},
		{"wait longer than the timeout", minimal + "controller.quorum.request.timeout.ms=500", "quorum.properties: controller.quorum.fetch.max.wait.ms=500: want less than controller.quorum.request.timeout.ms, 500"},
		{"wait longer than a leader is trusted", minimal + "controller.quorum.fetch.timeout.ms=500", "quorum.properties: controller.quorum.fetch.max.wait.ms=500: want less than controller.quorum.fetch.timeout.ms, 500"},
		{"request smaller than a batch", minimal + "socket.request.max.bytes=65536", "quorum.properties: socket.request.max.bytes=65536: want at least message.max.bytes plus 65536, 8454144"},
		{"bad escape", minimal + `broker.rack=\u00g0`, `quorum.properties: line 5: broker.rack="\\u00g0": want four hexadecimal digits after \u`},
		{"two problems", "node.id=x\nlog.dirs=/d\nlisteners=CONTROLLER://a:1\ncontroller.quorum.bootstrap.servers=a:1\nmax.connections=0", "quorum.properties: line 1: node.id=x: want an integer from 0 to 2147483647; line 5: max.connections=0: want an integer from 1 to 1000000"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Parse("quorum.properties", []byte(test.data), Host{})
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Fatalf("got %v, want an *Error", err)
			}
			if err.Error() != test.want {
				t.Errorf("\n got %s\nwant %s", err, test.want)
			}
		})
	}
}

// TestB70Advertised: advertised.listeners, else the bound address, else the own static voter, else the host's name;
// never a wildcard.
func TestB70Advertised(t *testing.T) {
	const wild = "node.id=1\nlog.dirs=/d\ncontroller.quorum.bootstrap.servers=a:1\nlisteners=CONTROLLER://:9093,CLIENT://[::]:9092,HEALTH://10.0.0.1:0\n"
	for _, test := range []struct {
		name, data, hostname string
		want                 []raft.Endpoint
		bad                  string
	}{
		{"host's name", wild, "q-1.local", []raft.Endpoint{{Name: "CONTROLLER", Host: "q-1.local", Port: 9093}, {Name: "CLIENT", Host: "q-1.local", Port: 9092}, {Name: "HEALTH", Host: "10.0.0.1"}}, ""},
		{"advertised", wild + "advertised.listeners=CONTROLLER://x:1,CLIENT://[2001:db8::1]:2", "", []raft.Endpoint{{Name: "CONTROLLER", Host: "x", Port: 1}, {Name: "CLIENT", Host: "2001:db8::1", Port: 2}, {Name: "HEALTH", Host: "10.0.0.1"}}, ""},
		{"own voter", wild + "controller.quorum.voters=1@v:9093", "h", []raft.Endpoint{{Name: "CONTROLLER", Host: "v", Port: 9093}, {Name: "CLIENT", Host: "v", Port: 9092}, {Name: "HEALTH", Host: "10.0.0.1"}}, ""},
		{"nothing to go by", wild, "", nil, "quorum.properties: listeners=CONTROLLER://:9093 binds every address: want advertised.listeners to say how others reach it; listeners=CLIENT://[::]:9092 binds every address: want advertised.listeners to say how others reach it"},
		{"wildcard advertised", wild + "advertised.listeners=CONTROLLER://0.0.0.0:9093", "h", nil, "quorum.properties: advertised.listeners=CONTROLLER://0.0.0.0:9093: want a host that others can reach, not a wildcard"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, err := Parse("quorum.properties", []byte(test.data), Host{Hostname: test.hostname})
			if test.bad != "" {
				if err == nil || err.Error() != test.bad {
					t.Fatalf("\n got %v\nwant %s", err, test.bad)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, c.Advertised); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestStaticVotersAreTheBootstrapList(t *testing.T) {
	c := parse(t, "node.id=2\nlog.dirs=/d\nlisteners=RAFT://b:1\ncontroller.listener.names=RAFT\ncontroller.quorum.voters=2@b:1,1@a:1\n")
	if diff := cmp.Diff([]raft.Destination{{ID: -2, Host: "a", Port: 1}, {ID: -3, Host: "b", Port: 1}}, c.Bootstrap); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := c.StaticVoters[1].Endpoints[0]; got != (raft.Endpoint{Name: "RAFT", Host: "b", Port: 1}) {
		t.Errorf("got %+v", got)
	}
}

func TestEnvironment(t *testing.T) {
	env := map[string]string{"ID": "7", "RACK": "", "HOST": "q-7", "TRICK": "${env:ID}"}
	c, err := Parse("f", []byte("node.id=${env:ID}\nbroker.rack=${env:RACK}\nlog.dirs=/d\ncontroller.quorum.bootstrap.servers=p:1\n"+
		"listeners=CONTROLLER://${env:HOST}:9093,CLIENT://${env:HOST}:9092\nconfig.revision=${env:TRICK}"),
		Host{LookupEnv: func(n string) (string, bool) { v, ok := env[n]; return v, ok }})
	if err != nil {
		t.Fatal(err)
	}
	if c.NodeID != 7 || c.Rack != "" || c.Advertised[1].Host != "q-7" || c.Revision != "${env:ID}" {
		t.Errorf("got node %d rack %q host %q revision %q", c.NodeID, c.Rack, c.Advertised[1].Host, c.Revision)
	}
}

func TestPropertiesSyntax(t *testing.T) {
	got, err := readProperties("# comment\n! another\r\n\n  a = 1\nb:2\nc 3\nd\ne=\nf\\ g\\=\\:=x\\\n   y\\\\\ng=\\u00e4\\t.\\z\nh==i\n#end\\\nj=k\\")
	if err != nil {
		t.Fatal(err)
	}
	want := []property{
		{"a", "1", 4}, {"b", "2", 5}, {"c", "3", 6}, {"d", "", 7}, {"e", "", 8}, {"f g=:", `xy\`, 9}, {"g", "ä\t.z", 11}, {"h", "=i", 12}, {"j", "k", 14},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(property{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestRenderIsReadBack(t *testing.T) {
	values := map[string]string{
		"node.id": Reference("NODE_ID"), "log.dirs": "/d", "listeners": "CONTROLLER://:9093,HEALTH://:8080",
		"advertised.listeners": "CONTROLLER://a:9093,HEALTH://a:8080", "controller.quorum.bootstrap.servers": "p:9093",
		"config.revision": ` \ tricky = #:! ü`, "cluster.id": "c-1",
	}
	first, err := Render(values)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if again, _ := Render(values); string(again) != string(first) {
			t.Fatalf("rendered differently:\n%s\n%s", first, again)
		}
	}
	c, err := Parse("f", first, Host{LookupEnv: func(string) (string, bool) { return "4", true }})
	if err != nil {
		t.Fatalf("%v\n%s", err, first)
	}
	if c.NodeID != 4 || c.Revision != values["config.revision"] || c.ClusterID != "c-1" {
		t.Errorf("read back node %d revision %q", c.NodeID, c.Revision)
	}
	if _, err := Render(map[string]string{"node.idd": "1", "a": "b"}); err == nil || err.Error() != "unknown key a, node.idd: want node.id?" {
		t.Errorf("got %v", err)
	}
}

// TestEveryKeyIsSet: a value other than the default changes the Config, so that no key is read and then forgotten.
func TestEveryKeyIsSet(t *testing.T) {
	other := map[string]string{
		"node.id": "3", "cluster.id": "x", "broker.rack": "r", "config.revision": "v", "listeners": "CONTROLLER://other:1",
		"advertised.listeners": "CONTROLLER://other:1", "controller.quorum.bootstrap.servers": "x:1", "controller.quorum.voters": "9@x:1",
		"log.dirs": "/x", "metadata.log.dir": "/x", "topic.name": "x", "topic.id": "AAAAAAAAAAAAAAAAAAAAAg", "topic.mode": "opaque",
		"client.read.replicas": "leader", "log.level": "warn", "log.format": "json",
		"socket.request.max.bytes": "9000000", "queued.max.request.bytes": "9000000", "message.max.bytes": "2048",
		"metadata.log.segment.bytes": "2097152", "cluster.id.optional": "true", "observer.only": "true", "controller.quorum.auto.join.enable": "true",
		"controller.quorum.request.timeout.ms": "777", "controller.quorum.fetch.timeout.ms": "777", "controller.quorum.fetch.max.wait.ms": "77", "connections.max.idle.ms": "7777",
	}
	onlyChecked := map[string]bool{"process.roles": true, "listener.security.protocol.map": true, "controller.listener.names": true}
	base := parse(t, minimal)
	for _, k := range Keys() {
		value := other[k.Name]
		if value == "" {
			value = "77"
		}
		if onlyChecked[k.Name] {
			continue
		}
		lines := []string{k.Name + "=" + value}
		for line := range strings.Lines(minimal) {
			if !strings.HasPrefix(line, k.Name+"=") {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
		c, err := Parse("quorum.properties", []byte(strings.Join(lines, "\n")), Host{})
		if err != nil {
			t.Errorf("%s=%s: %v", k.Name, value, err)
		} else if cmp.Equal(base, c, cmpopts.EquateEmpty()) {
			t.Errorf("%s=%s changes nothing", k.Name, value)
		}
	}
}

// TestReference keeps the table of all keys in docs/configuration.md as the code has it.
func TestReference(t *testing.T) {
	const file = "../../docs/configuration.md"
	want := Markdown()
	if *update {
		if err := os.MkdirAll("../../docs", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the keys say: run go test ./quorum/config -update", file)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(minimal)
	f.Add("a\\\n=b")
	f.Fuzz(func(t *testing.T, data string) {
		c, err := Parse("f", []byte(data), Host{Hostname: "h"})
		if (c == nil) == (err == nil) {
			t.Fatalf("got %v and %v", c, err)
		}
		if err != nil && (!strings.HasPrefix(err.Error(), "f: ") || strings.ContainsAny(err.Error(), "\r\n")) {
			t.Fatalf("error %q is not one line that names the file", err)
		}
	})
}
