package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/config"
	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/replica"
	"github.com/kraft-operator/kraft-operator/quorum/status"
)

// hungAfter is how long the loop may not come round before /livez asks for a restart.
const hungAfter = 20 * time.Second

// maxBody bounds what anybody may send to ADMIN.
const maxBody = 64 << 10

// serveHTTP serves HEALTH and ADMIN from the start on. The function it returns stops them: it cuts what is under way.
func (s *server) serveHTTP(workers *sync.WaitGroup, listeners map[string]net.Listener) (stop func()) {
	var servers []*http.Server
	serve := func(name string, handler http.Handler) {
		l, ok := listeners[name]
		if !ok {
			return
		}
		delete(listeners, name)
		h := &http.Server{
			Handler:           handler,
			ReadHeaderTimeout: 5 * time.Second,
			ReadTimeout:       10 * time.Second,
			WriteTimeout:      30 * time.Second,
			IdleTimeout:       s.cfg.MaxConnectionsIdle,
			MaxHeaderBytes:    16 << 10,
			ErrorLog:          slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
		}
		servers = append(servers, h)
		workers.Go(func() {
			if err := h.Serve(limitListener(l, s.cfg.MaxConnections)); !errors.Is(err, http.ErrServerClosed) {
				s.Log.Error("Listener ended", "listener", name, "err", err)
			}
		})
	}
	health := http.NewServeMux()
	health.HandleFunc("GET /livez", s.livez)
	health.HandleFunc("GET /readyz", s.readyz)
	health.HandleFunc("GET /metrics", s.serveMetrics)
	health.HandleFunc("GET "+status.MemberPath, s.serveStatus)
	serve(config.Health, health)

	admin := http.NewServeMux()
	admin.HandleFunc("POST "+status.HandoffPath, s.serveHandoff)
	admin.HandleFunc("GET /v1/loglevel", s.serveLogLevel)
	admin.HandleFunc("PUT /v1/loglevel", s.serveLogLevel)
	serve(config.Admin, admin)
	return func() {
		for _, h := range servers {
			h.Close()
		}
	}
}

// livez tells a hung process from one that is merely of no use at the moment: a member without a leader, one that reads a
// long log, or one with a full disk is alive, and restarting it would help nobody.
func (s *server) livez(w http.ResponseWriter, _ *http.Request) {
	switch age := time.Duration(s.now()) - time.Duration(s.beat.Load()); {
	case s.view.Load() == nil:
		fmt.Fprintln(w, "ok: opening the directory")
	case age > hungAfter:
		http.Error(w, fmt.Sprintf("the loop has not come round for %s", age.Round(time.Second)), http.StatusServiceUnavailable)
	default:
		fmt.Fprintln(w, "ok")
	}
}

func (s *server) readyz(w http.ResponseWriter, _ *http.Request) {
	if ready, reason := s.ready(); !ready {
		http.Error(w, reason, http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

func (s *server) ready() (bool, string) {
	v := s.view.Load()
	if v == nil {
		return false, "is opening the directory"
	}
	return v.ready()
}

func (s *server) serveStatus(w http.ResponseWriter, _ *http.Request) {
	v := s.view.Load()
	if v == nil {
		problem(w, http.StatusServiceUnavailable, status.Problem{Code: status.Unavailable, Message: "the member is opening its directory"})
		return
	}
	writeJSON(w, http.StatusOK, s.status(v))
}

func (s *server) serveLogLevel(w http.ResponseWriter, r *http.Request) {
	if s.Level == nil {
		problem(w, http.StatusNotFound, status.Problem{Code: status.InvalidRequest, Message: "the log level of this process cannot be changed"})
		return
	}
	if r.Method == http.MethodPut {
		text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64))
		var level slog.Level
		if err == nil {
			err = level.UnmarshalText(text)
		}
		if err != nil {
			problem(w, http.StatusBadRequest, status.Problem{Code: status.InvalidRequest, Message: fmt.Sprintf("log level %q: want debug, info, warn or error", text)})
			return
		}
		s.Log.Info("Changed log level", "from", s.Level.Level().String(), "to", level.String())
		s.Level.Set(level)
	}
	fmt.Fprintln(w, s.Level.Level())
}

// serveHandoff begins a handoff and answers at once; how it goes is in /v1/status. Only the leader can: others send the
// caller on to its ADMIN listener.
func (s *server) serveHandoff(w http.ResponseWriter, r *http.Request) {
	var req status.HandoffRequest
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&req); err != nil && !errors.Is(err, io.EOF) {
		problem(w, http.StatusBadRequest, status.Problem{Code: status.InvalidRequest, Message: "body: " + err.Error()})
		return
	}
	h, err := s.handoffEvent(req)
	if err != nil {
		problem(w, http.StatusBadRequest, status.Problem{Code: status.InvalidRequest, Message: err.Error()})
		return
	}
	v := s.view.Load()
	if v == nil || v.stopping {
		problem(w, http.StatusServiceUnavailable, status.Problem{Code: status.Unavailable, Message: "the member is starting or stopping"})
		return
	}
	if v.Role != raft.Leader {
		s.redirect(w, v)
		return
	}
	answered := make(chan raft.HandoffAccepted, 1)
	var id raft.RequestID
	if !s.post(func() {
		s.ask(waiter{
			reply: func(result any) { answered <- result.(raft.HandoffAccepted) },
			drop:  func() {}, // s.done tells
		}, func(given raft.RequestID) replica.Event {
			id, h.ID = given, given
			return replica.Core{Event: h}
		})
	}) {
		problem(w, http.StatusServiceUnavailable, status.Problem{Code: status.Unavailable, Message: "the member is stopping"})
		return
	}
	select {
	case accepted := <-answered:
		s.answerHandoff(w, accepted, id, req.DryRun)
	case <-s.done:
		problem(w, http.StatusServiceUnavailable, status.Problem{Code: status.Unavailable, Message: "the member is stopping"})
	case <-r.Context().Done():
	}
}

func (s *server) answerHandoff(w http.ResponseWriter, accepted raft.HandoffAccepted, id raft.RequestID, dryRun bool) {
	if accepted.Refusal != "" {
		problem(w, http.StatusConflict, status.Problem{Code: status.Refused, Message: accepted.Refusal, Leader: leaderStatus(s.view.Load())})
		return
	}
	answer := status.HandoffAccepted{
		From:   int32(s.cfg.NodeID),
		Target: status.ReplicaKey{NodeID: int32(accepted.Target.ID), DirectoryID: directoryID(accepted.Target.DirectoryID)},
		Epoch:  int32(accepted.Epoch),
		DryRun: dryRun,
	}
	code := http.StatusOK
	if !dryRun {
		answer.ID, code = s.handoffID(id), http.StatusAccepted
	}
	writeJSON(w, code, answer)
}

// handoffID makes an id that no other process of this member gives out.
func (s *server) handoffID(id raft.RequestID) string {
	if id == 0 {
		return ""
	}
	return fmt.Sprintf("%d-%x-%d", s.cfg.NodeID, s.began.Unix(), id)
}

func (s *server) handoffEvent(req status.HandoffRequest) (raft.Handoff, error) {
	h := raft.Handoff{
		ExpectEpoch:    raft.Epoch(req.ExpectEpoch),
		Target:         raft.NoReplica,
		MaxPause:       req.MaxPause.Std(),
		CatchUpTimeout: req.CatchUpTimeout.Std(),
		DryRun:         req.DryRun,
	}
	if h.MaxPause == 0 {
		h.MaxPause = s.cfg.HandoffMaxPause
	}
	if h.CatchUpTimeout == 0 {
		h.CatchUpTimeout = s.cfg.HandoffCatchUpTimeout
	}
	if req.Target != nil {
		key, err := replicaKey(*req.Target)
		if err != nil {
			return h, fmt.Errorf("target: %w", err)
		}
		h.Target = key
	}
	for i, c := range req.Candidates {
		key, err := replicaKey(c)
		if err != nil {
			return h, fmt.Errorf("candidates[%d]: %w", i, err)
		}
		h.Candidates = append(h.Candidates, key)
	}
	return h, nil
}

func replicaKey(k status.ReplicaKey) (raft.ReplicaKey, error) {
	key := raft.ReplicaKey{ID: raft.NodeID(k.NodeID)}
	if k.NodeID < 0 {
		return key, fmt.Errorf("nodeID %d: want 0 or more", k.NodeID)
	}
	if k.DirectoryID == "" {
		return key, nil
	}
	var err error
	key.DirectoryID, err = raft.ParseUUID(k.DirectoryID)
	return key, err
}

// redirect sends the caller to the leader's ADMIN listener.
func (s *server) redirect(w http.ResponseWriter, v *view) {
	p := status.Problem{Code: status.NotLeader, Message: "no leader is known", Leader: leaderStatus(v)}
	hint := v.hint(config.Admin)
	if hint.Leader == raft.None {
		problem(w, http.StatusServiceUnavailable, p)
		return
	}
	p.Message = fmt.Sprintf("node %d leads epoch %d", hint.Leader, hint.Epoch)
	if hint.Node.Host == "" {
		p.Message += "; its ADMIN address is not known here"
		problem(w, http.StatusServiceUnavailable, p)
		return
	}
	w.Header().Set("Location", "http://"+net.JoinHostPort(hint.Node.Host, strconv.Itoa(int(hint.Node.Port)))+status.HandoffPath)
	problem(w, http.StatusTemporaryRedirect, p)
}

func problem(w http.ResponseWriter, code int, p status.Problem) { writeJSON(w, code, p) }

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(v) // the client is gone
}

// limitListener closes connections beyond the bound at once.
func limitListener(l net.Listener, most int) net.Listener {
	return &limited{Listener: l, free: make(chan struct{}, most)}
}

type limited struct {
	net.Listener
	free chan struct{} // one element for each open connection
}

func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.free <- struct{}{}:
			return &limitedConn{Conn: c, release: sync.OnceFunc(func() { <-l.free })}, nil
		default:
			c.Close()
		}
	}
}

type limitedConn struct {
	net.Conn
	release func()
}

func (c *limitedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
