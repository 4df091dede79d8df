package server

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	mathrand "math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/config"
	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/replica"
	"github.com/kraft-operator/kraft-operator/quorum/state"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
	"github.com/kraft-operator/kraft-operator/quorum/transport"
	"github.com/kraft-operator/kraft-operator/quorum/wire"
)

// Version is the version of the binary, set by the linker.
var Version = "dev"

// Options are what Run needs of the world.
type Options struct {
	Config *config.Config
	FS     vfs.FS
	Log    *slog.Logger
	Level  *slog.LevelVar // behind /v1/loglevel; nil: that is not offered
	Listen func(ctx context.Context, network, address string) (net.Listener, error)
	Dial   transport.DialFunc
	Kill   <-chan struct{}  // closed: drop everything at once, like SIGKILL
	Wall   func() time.Time // the calendar, which may jump and times nothing; nil: the machine's
	// OnListen, if set, is told the addresses that were bound, before anything is served.
	OnListen func(advertised []raft.Endpoint)
}

// ErrKilled is what Run returns after Options.Kill.
var ErrKilled = errors.New("killed")

// Run is one member's life. It returns nil after a graceful stop, which the end of ctx begins: a leader first hands its
// leadership over. A fault that ends the process is a *Fatal.
func Run(ctx context.Context, o Options) error {
	if o.Wall == nil {
		o.Wall = time.Now
	}
	s := &server{
		Options: o,
		cfg:     o.Config,
		began:   time.Now(),
		inbox:   make(chan func(), inboxSize),
		flushes: make(chan *replica.Flush, 1), // at most one is outstanding
		flushed: make(chan flushed, 1),
		notes:   make(chan struct{}, 1), // one that waits is enough
		done:    make(chan struct{}),
		reading: make(chan struct{}, maxReading),
		checks:  make(chan struct{}, maxChecks),
		loop:    loop{waiting: map[raft.RequestID]waiter{}, jobs: map[*replica.Job]struct{}{}, claims: newClaims(o.Config.FetchTimeout), leaderContact: -1},
	}
	return s.run(ctx)
}

// maxReading bounds the clients' reads of the log that are under way at once: the memory they take, and what they take
// from the disk that appends need.
const maxReading = 4

// maxChecks bounds the clients' batches that are checked at once: a small one may unpack to record.MaxDecoded.
const maxChecks = 4

// inboxSize bounds the events that wait for the loop. Whoever has one more waits with it and reads nothing meanwhile.
const inboxSize = 1024

type server struct {
	Options
	cfg   *config.Config
	began time.Time

	replica *replica.Replica
	members *members
	peers   *transport.Peers
	codecs  struct{ controller, client *wire.Codec }

	advertised []raft.Endpoint
	inbox      chan func() // run by the loop
	flushes    chan *replica.Flush
	notes      chan struct{} // the committed file is due
	flushed    chan flushed
	done       chan struct{} // closed when the loop has ended
	view       atomic.Pointer[view]
	beat       atomic.Int64 // when the loop last came round
	metrics    metrics

	workers  sync.WaitGroup  // goroutines that must end before the replica is closed
	ended    context.Context // done when the loop has ended
	forwards atomic.Int64    // producer ids being asked for
	reading  chan struct{}   // one element for each read of the log that is under way
	checks   chan struct{}   // one element for each batch that is being checked

	loop // owned by the loop's goroutine
}

func (s *server) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	listeners, err := s.bind(ctx)
	if err != nil {
		return err
	}
	defer func() {
		for _, l := range listeners {
			l.Close() // those that were never served
		}
	}()
	if s.OnListen != nil {
		s.OnListen(s.advertised)
	}

	// The kubelet asks from the first moment on, and opening the directory may take long: its lock, a long log.
	var background sync.WaitGroup
	stopHTTP := s.serveHTTP(&background, listeners)
	defer background.Wait()
	defer stopHTTP()

	if err := s.open(ctx); err != nil {
		return s.excused(ctx, err)
	}
	return s.serve(ctx, listeners)
}

// serve runs the loop and everything that talks to it, until the loop ends.
func (s *server) serve(ctx context.Context, listeners map[string]net.Listener) error {
	s.peers = &transport.Peers{
		Codec:          s.codecs.controller,
		Dial:           s.Dial,
		RequestTimeout: s.cfg.RequestTimeout,
		OnReply:        s.onReply,
		OnLost:         func(lost raft.ConnectionLost) { s.post(func() { s.step(replica.Core{Event: lost}) }) },
	}
	s.publish()

	ended, end := context.WithCancel(context.Background())
	s.ended = ended
	s.workers.Go(s.flushLoop)
	s.workers.Go(s.noteLoop)
	servers := s.serveKafka(listeners)

	err := s.runLoop(ctx)
	close(s.done) // whoever waits to hand in an event gives up
	end()
	close(s.flushes)
	close(s.notes)

	s.dropWaiting()
	for job := range s.jobs {
		job.Cancel()
	}
	graceful := err == nil
	closed := make(chan struct{})
	s.workers.Go(func() {
		defer close(closed)
		for _, server := range servers {
			if graceful {
				drain, cancel := context.WithTimeout(context.Background(), drainTimeout)
				server.Drain(drain)
				cancel()
			}
			server.Close()
		}
	})
	s.turnAway(closed)
	s.peers.Close()
	s.workers.Wait()
	if !graceful {
		s.replica.Abandon()
		return err
	}
	if err := s.replica.Close(); err != nil {
		return fatalOf(s.cfg.LogDir, err)
	}
	return nil
}

// drainTimeout bounds how long the last answers may take to leave.
const drainTimeout = time.Second

// bind listens on every configured address, all or none.
func (s *server) bind(ctx context.Context) (map[string]net.Listener, error) {
	bound := map[string]net.Listener{}
	for i, e := range s.cfg.Listeners {
		address := net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port)))
		l, err := s.Listen(ctx, "tcp", address)
		if err != nil {
			for _, l := range bound {
				l.Close()
			}
			return nil, listenFault(e.Name, address, err)
		}
		bound[e.Name] = l
		advertised := s.cfg.Advertised[i]
		if tcp, ok := l.Addr().(*net.TCPAddr); ok && advertised.Port == 0 {
			advertised.Port = uint16(tcp.Port)
		}
		s.advertised = append(s.advertised, advertised)
	}
	return bound, nil
}

// open opens the directory, formatting it first if it is empty and the configuration says whose it is to be, and makes
// the replica.
func (s *server) open(ctx context.Context) error {
	rc := replica.Config{
		Raft:      s.raftConfig(),
		Producers: state.Options{MaxProducers: maxProducers, Expiration: s.cfg.ProducerIDExpiry},
		Snapshots: replica.Snapshots{
			Opaque:          s.cfg.TopicMode == config.Opaque,
			Bytes:           s.cfg.SnapshotBytes,
			Interval:        s.cfg.SnapshotInterval,
			DeleteRetention: s.cfg.DeleteRetention,
			RetentionBytes:  s.cfg.RetentionBytes,
			Retention:       s.cfg.Retention,
		},
		MaxParkedReads: clientInFlight * s.cfg.MaxConnections,
		Beside:         true,
		Wall:           s.Wall,
	}
	so := storage.Options{
		ClusterID:    s.cfg.ClusterID,
		NodeID:       s.cfg.NodeID,
		Topic:        s.cfg.TopicName,
		TopicID:      s.cfg.TopicID,
		SegmentBytes: s.cfg.SegmentBytes,
		SegmentAge:   s.cfg.SegmentAge,
		LockGrace:    s.cfg.LockTimeout,
		Sleep:        sleeper(ctx, s.Kill),
		Reserve:      s.cfg.ReserveBytes,
		Ballast:      s.cfg.BallastBytes,
	}
	r, err := replica.Open(s.FS, s.cfg.LogDir, so, rc, s.now())
	var fault *storage.Fault
	if errors.As(err, &fault) && fault.Token == storage.NotFormatted && s.cfg.ClusterID != "" {
		if err := s.format(); err != nil {
			return fatalOf(s.cfg.LogDir, err)
		}
		r, err = replica.Open(s.FS, s.cfg.LogDir, so, rc, s.now())
	}
	if err != nil {
		return fatalOf(s.cfg.LogDir, err)
	}
	s.replica = r
	s.describeOpened()

	self := r.Status().Self
	s.members = newMembers(wire.Member{Key: self, Listeners: s.advertised, Rack: s.cfg.Rack})
	s.codecs.controller = s.codec(wire.Peers, s.cfg.ControllerListener)
	s.codecs.client = s.codec(wire.Clients, config.Client)
	return nil
}

// excused forgives what failed only because the process is not wanted any more: the wait for the directory's lock.
func (s *server) excused(ctx context.Context, err error) error {
	select {
	case <-s.Kill:
		return ErrKilled
	default:
	}
	if fatal, ok := errors.AsType[*Fatal](err); ok && ctx.Err() != nil && fatal.Token == raft.FatalReason(storage.DirLocked) {
		return nil
	}
	return err
}

// maxProducers bounds the memory of idempotent producers: about 20 MB.
const maxProducers = 100_000

// format makes a new member of an existing quorum of an empty directory: it has no say in anything until it is voted in.
func (s *server) format() error {
	version := int16(1)
	if len(s.cfg.StaticVoters) > 0 {
		version = 0
	}
	err := storage.Format(s.FS, s.cfg.LogDir, storage.FormatOptions{
		ClusterID:    s.cfg.ClusterID,
		NodeID:       s.cfg.NodeID,
		KRaftVersion: version,
		Topic:        s.cfg.TopicName,
		Timestamp:    s.Wall().UnixMilli(),
	})
	if err == nil {
		s.Log.Info("Formatted empty directory without initial voters", "dir", s.cfg.LogDir, "cluster", s.cfg.ClusterID)
	}
	return err
}

func (s *server) describeOpened() {
	st := s.replica.Status()
	rec := s.replica.Dir().Recovery()
	s.Log.Info("Opened log", "dir", s.cfg.LogDir, "replica", st.Self.String(), "cluster", s.replica.Dir().Meta().ClusterID,
		"epoch", st.Election.Epoch, "offset", st.LogEnd.Offset, "batches", rec.Batches, "bytes", rec.Bytes, "duration", time.Since(s.began))
	if rec.Torn.Bytes > 0 {
		s.Log.Warn("Cut a torn tail off the log", "segment", rec.Torn.File, "position", rec.Torn.Position, "bytes", rec.Torn.Bytes,
			"offset", rec.Torn.Offset, "reason", rec.Torn.Reason)
	}
	for _, d := range rec.Damaged {
		s.Log.Warn("Removed a damaged snapshot: an older one and the log hold the same", "file", d.File, "reason", d.Reason)
	}
	if st.KRaftVersion == 0 {
		s.Log.Warn("The quorum has static voters (kraft.version 0): a voter that lost its disk cannot be told from one that did not, so never start a voter on an empty directory")
	}
	if s.cfg.ObserverOnly && st.IsVoter {
		s.Log.Warn("This member is a voter already: observer.only=true keeps it from nothing until it is removed, with quorum voter remove", "voter", st.Self.ID)
	}
	if unlisted, strangers := differing(s.cfg.Bootstrap, st.Voters); len(unlisted)+len(strangers) > 0 {
		s.Log.Info("Bootstrap servers are others than the voters, and only show the way to them", "unlisted", unlisted, "strangers", strangers)
	}
}

// differing compares the configured servers with the voters in force: voters that are not listed, and servers that are no
// voters. One name that is no voter's may stand for all of them, as a Service's does.
func differing(servers []raft.Destination, voters raft.VoterSet) (unlisted, strangers []string) {
	listed := map[string]bool{}
	for _, d := range servers {
		listed[net.JoinHostPort(d.Host, strconv.Itoa(int(d.Port)))] = true
	}
	for _, v := range voters {
		reached := false
		for _, e := range v.Endpoints {
			at := net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port)))
			reached = reached || listed[at]
			delete(listed, at)
		}
		if !reached {
			unlisted = append(unlisted, v.Key.String())
		}
	}
	strangers = slices.Sorted(maps.Keys(listed))
	if len(voters) == 0 || len(strangers) == 1 && len(servers) == 1 {
		return nil, nil
	}
	return unlisted, strangers
}

func (s *server) raftConfig() raft.Config {
	return raft.Config{
		RequireID:          !s.cfg.ClusterIDOptional,
		Endpoints:          s.advertised,
		Listener:           s.cfg.ControllerListener,
		KRaft:              kraftVersions,
		ObserverOnly:       s.cfg.ObserverOnly,
		AutoJoin:           s.cfg.AutoJoin,
		StaticVoters:       s.cfg.StaticVoters,
		Bootstrap:          s.cfg.Bootstrap,
		ElectionTimeout:    s.cfg.ElectionTimeout,
		FetchTimeout:       s.cfg.FetchTimeout,
		ElectionBackoffMax: s.cfg.ElectionBackoffMax,
		RequestTimeout:     s.cfg.RequestTimeout,
		RetryBackoff:       s.cfg.RetryBackoff,
		AppendLinger:       s.cfg.AppendLinger,
		FetchMaxWait:       s.cfg.FetchMaxWait,
		FetchMaxBytes:      s.cfg.FetchMaxBytes,
		SnapshotMaxBytes:   s.cfg.SnapshotMaxBytes,
		MaxPending:         s.cfg.MaxPendingAppends,
		Rand:               newRand(),
	}
}

// kraftVersions are the levels of kraft.version that this binary knows.
var kraftVersions = raft.VersionRange{Min: 0, Max: 1}

func newRand() *mathrand.Rand {
	var seed [16]byte
	rand.Read(seed[:])
	return mathrand.New(mathrand.NewPCG(binary.LittleEndian.Uint64(seed[:]), binary.LittleEndian.Uint64(seed[8:])))
}

func (s *server) codec(serves wire.Serves, listener string) *wire.Codec {
	c := &wire.Codec{
		Serves:    serves,
		Listener:  listener,
		ClusterID: s.replica.Dir().Meta().ClusterID,
		Topic:     s.cfg.TopicName,
		TopicID:   s.cfg.TopicID,
		ClientID:  fmt.Sprintf("quorum-%d", s.cfg.NodeID),
		Features: func() wire.Features {
			v := s.view.Load()
			return wire.Features{KRaftVersion: v.KRaftVersion, Epoch: max(v.VotersOffset, 0)}
		},
	}
	if !s.cfg.ObserverOnly {
		c.KRaft = &kraftVersions
	}
	return c
}

func (s *server) topicMode() record.Mode {
	if s.cfg.TopicMode == config.Opaque {
		return record.Opaque
	}
	return record.Keyed
}

// now is the time on the replica's clock.
func (s *server) now() raft.Instant { return raft.Instant(time.Since(s.began)) }

// sleeper waits no longer than the process is wanted.
func sleeper(ctx context.Context, kill <-chan struct{}) func(time.Duration) {
	return func(d time.Duration) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		case <-kill:
		}
	}
}
