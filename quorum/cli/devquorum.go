package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/kraft-operator/kraft-operator/quorum/config"
	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/server"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// devQuorum is a whole quorum in one process on loopback: the directories and properties files of ordinary members.
//
//	<dir>/<id>.properties   what `quorum run --config` of that member would read
//	<dir>/<id>/             its directory
//
// The files make it start again on the same ports, which its voter set names.
type devQuorum struct {
	env     *Env
	dir     string
	members []*devMember
	// held are the ports of new members, bound from the choice of the port until its member listens.
	held map[string]net.Listener
}

type devMember struct {
	id  raft.NodeID
	cfg *config.Config
}

// firstObserver is the lowest node id of an observer. It may become a voter, and a voter an observer.
const firstObserver = 1000

// devListeners are the listeners of a member, in the order of their ports from --port-base on.
var devListeners = []string{config.Client, config.Controller, config.Admin, config.Health}

// openDevQuorum reads the members that dir holds and adds what is missing. With members there already, the number of
// voters must be theirs; observers may be added.
func openDevQuorum(ctx context.Context, env *Env, dir string, voters, observers, portBase int) (_ *devQuorum, err error) {
	q := &devQuorum{env: env, dir: dir, held: map[string]net.Listener{}}
	defer func() {
		if err != nil {
			q.release()
		}
	}()
	if err := env.FS.MkdirAll(dir); err != nil {
		return nil, err
	}
	if err := q.load(); err != nil {
		return nil, err
	}
	had := q.count(false)
	switch {
	case len(q.members) > 0 && had != voters:
		return nil, fmt.Errorf("%s holds a quorum of %d voters: want --voters %d, or another --dir", dir, had, had)
	case len(q.members) == 0:
		if err := q.create(ctx, voters, portBase); err != nil {
			return nil, err
		}
	}
	for n := q.count(true); n < observers; n++ {
		if err := q.addObserver(ctx, n, voters, portBase); err != nil {
			return nil, err
		}
	}
	return q, nil
}

func (q *devQuorum) count(observers bool) int {
	n := 0
	for _, m := range q.members {
		if (m.id >= firstObserver) == observers {
			n++
		}
	}
	return n
}

// load reads the properties files.
func (q *devQuorum) load() error {
	names, err := q.env.FS.List(q.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		id, ok := strings.CutSuffix(name, ".properties")
		if !ok {
			continue
		}
		if _, err := strconv.Atoi(id); err != nil {
			continue
		}
		cfg, err := q.env.readConfig(path.Join(q.dir, name))
		if err != nil {
			return err
		}
		q.members = append(q.members, &devMember{id: cfg.NodeID, cfg: cfg})
	}
	slices.SortFunc(q.members, func(a, b *devMember) int { return int(a.id - b.id) })
	return nil
}

// create makes the voters of a new quorum.
func (q *devQuorum) create(ctx context.Context, voters, portBase int) error {
	cluster, err := storage.NewDirectoryID(rand.Reader) // Kafka's cluster ids look the same
	if err != nil {
		return err
	}
	ports := make([]map[string]string, voters)
	var set []raft.Voter
	var bootstrap []string
	for i := range voters {
		if ports[i], err = q.choosePorts(ctx, i, portBase); err != nil {
			return err
		}
		directory, err := storage.NewDirectoryID(rand.Reader)
		if err != nil {
			return err
		}
		host, port, err := config.ParseHostPort(ports[i][config.Controller])
		if err != nil {
			return err
		}
		bootstrap = append(bootstrap, ports[i][config.Controller])
		set = append(set, raft.Voter{
			Key:       raft.ReplicaKey{ID: raft.NodeID(i), DirectoryID: directory},
			Endpoints: []raft.Endpoint{{Name: config.Controller, Host: host, Port: port}},
			KRaft:     raft.VersionRange{Min: 0, Max: 1},
		})
	}
	initial, err := raft.NewVoterSet(set...)
	if err != nil {
		return err
	}
	for i := range voters {
		if err := q.add(raft.NodeID(i), cluster.String(), ports[i], bootstrap, initial); err != nil {
			return err
		}
	}
	return nil
}

func (q *devQuorum) addObserver(ctx context.Context, n, voters, portBase int) error {
	ports, err := q.choosePorts(ctx, voters+n, portBase)
	if err != nil {
		return err
	}
	meta, err := storage.ReadMeta(q.env.FS, q.members[0].cfg.LogDir)
	if err != nil {
		return err
	}
	var bootstrap []string
	for _, m := range q.members[:voters] {
		bootstrap = append(bootstrap, q.address(m, config.Controller))
	}
	return q.add(firstObserver+raft.NodeID(n), meta.ClusterID, ports, bootstrap, nil)
}

// choosePorts binds the ports of the place-th member: from portBase on, or any free ones.
func (q *devQuorum) choosePorts(ctx context.Context, place, portBase int) (map[string]string, error) {
	ports := map[string]string{}
	for i, name := range devListeners {
		port := 0
		if portBase > 0 {
			port = portBase + place*len(devListeners) + i
		}
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		l, err := q.env.Listen(ctx, "tcp", address)
		if err != nil {
			return nil, fmt.Errorf("port %d for listener %s: %w; want another --port-base", port, name, err)
		}
		ports[name] = l.Addr().String()
		q.held[ports[name]] = l
	}
	return ports, nil
}

// add formats a member's directory and writes its properties file, in this order: with the file the member exists.
func (q *devQuorum) add(id raft.NodeID, cluster string, ports map[string]string, bootstrap []string, initial raft.VoterSet) error {
	dir := path.Join(q.dir, fmt.Sprint(id))
	if err := storage.Format(q.env.FS, dir, storage.FormatOptions{ClusterID: cluster, NodeID: id, InitialVoters: initial, KRaftVersion: 1}); err != nil {
		return err
	}
	var listeners []string
	for _, name := range devListeners {
		listeners = append(listeners, name+"://"+ports[name])
	}
	text, err := config.Render(map[string]string{
		"node.id":                               fmt.Sprint(id),
		"process.roles":                         "controller",      // kafka-metadata-quorum add-controller wants to read this and
		"controller.listener.names":             config.Controller, // this
		"listeners":                             strings.Join(listeners, ","),
		"log.dirs":                              dir,
		"controller.quorum.bootstrap.servers":   strings.Join(bootstrap, ","),
		"controller.quorum.election.timeout.ms": "200", // loopback: the first leader need not wait a second
		"log.reserve.bytes":                     "0",   // it shares the disk with everything else of its user
		"shutdown.timeout.ms":                   "300", // all stop at once: nobody is left to hand over to
	})
	if err != nil {
		return err
	}
	file := path.Join(q.dir, fmt.Sprint(id)+".properties")
	if err := vfs.WriteFileAtomic(q.env.FS, file, text); err != nil {
		return err
	}
	cfg, err := q.env.readConfig(file)
	if err != nil {
		return err
	}
	q.members = append(q.members, &devMember{id: id, cfg: cfg})
	return nil
}

// run runs all members until ctx ends or one fails.
func (q *devQuorum) run(ctx context.Context, level string) error {
	defer q.release()
	log, levels, err := newLogger(q.env.Stderr, level, "text")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var members sync.WaitGroup
	failed := make(chan error, len(q.members))
	for _, m := range q.members {
		members.Go(func() {
			err := server.Run(ctx, server.Options{
				Config: m.cfg,
				FS:     q.env.FS,
				Log:    log.With("replica", m.id),
				Level:  levels,
				Listen: q.listen,
				Dial:   q.env.Dial,
				Kill:   q.env.Kill,
			})
			if err != nil {
				failed <- fmt.Errorf("member %d: %w", m.id, err)
				cancel() // the others stop as if they had been told to
			}
		})
	}
	members.Wait()
	close(failed)
	return <-failed
}

// listen hands out the ports that were bound when they were chosen.
func (q *devQuorum) listen(ctx context.Context, network, address string) (net.Listener, error) {
	if l, ok := q.held[address]; ok {
		return l, nil // each address is asked for once
	}
	return q.env.Listen(ctx, network, address)
}

func (q *devQuorum) release() {
	for _, l := range q.held {
		_ = l.Close() // those that were served are closed already
	}
}

func (q *devQuorum) address(m *devMember, listener string) string {
	e, _ := m.cfg.Listener(listener)
	return net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port)))
}

// addresses are those of all members, voters first.
func (q *devQuorum) addresses(listener string) []string {
	var all []string
	for _, m := range q.members {
		all = append(all, q.address(m, listener))
	}
	return all
}

// removeAll deletes a directory and all that is in it.
func removeAll(fsys vfs.FS, name string) error {
	info, err := fsys.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Dir {
		names, err := fsys.List(name)
		if err != nil {
			return err
		}
		for _, inner := range names {
			if err := removeAll(fsys, path.Join(name, inner)); err != nil {
				return err
			}
		}
	}
	return fsys.Remove(name)
}
