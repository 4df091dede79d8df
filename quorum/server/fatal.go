package server

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/replica"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
)

// Fatal is a fault that ends the process. Its token goes to the termination log, from where the operator copies it into
// a condition; its message is one sentence for people.
type Fatal struct {
	Token   raft.FatalReason
	Message string
	Err     error // the cause, for errors.Is; its text is part of Message
}

func (f *Fatal) Error() string { return fmt.Sprintf("%s: %s", f.Token, f.Message) }

func (f *Fatal) Unwrap() error { return f.Err }

// The tokens of the process, besides those of the core, the directory (package storage) and the replica.
const (
	ConfigInvalid raft.FatalReason = "CONFIG_INVALID"
	NotFormatted  raft.FatalReason = "NOT_FORMATTED"
	PortInUse     raft.FatalReason = "PORT_IN_USE"
	ListenFailed  raft.FatalReason = "LISTEN_FAILED"
)

// fatalOf turns what went wrong with opening the directory into the end of the process.
func fatalOf(dir string, err error) *Fatal {
	var fault *storage.Fault
	switch {
	case errors.As(err, &fault) && fault.Token == storage.NotFormatted:
		return &Fatal{NotFormatted, fmt.Sprintf("%s is not formatted: run `quorum format --cluster-id ID --config FILE` once, or set cluster.id to let it join an existing quorum", dir), err}
	case errors.As(err, &fault):
		return &Fatal{raft.FatalReason(fault.Token), fault.Message, err}
	case errors.Is(err, storage.ErrDiskFull):
		return &Fatal{replica.DiskFull, fmt.Sprintf("%s: %v", dir, err), err}
	default:
		return &Fatal{ConfigInvalid, err.Error(), err}
	}
}

// listenFault explains why a listener could not be bound.
func listenFault(name, address string, err error) *Fatal {
	if errors.Is(err, syscall.EADDRINUSE) {
		return &Fatal{PortInUse, fmt.Sprintf("listener %s: %s is in use by another process", name, address), err}
	}
	return &Fatal{ListenFailed, fmt.Sprintf("listener %s: cannot listen on %s: %s", name, address, rootCause(err)), err}
}

// rootCause is the innermost error's text: the wrapping of package net repeats the address that we name ourselves.
func rootCause(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return strings.TrimSpace(err.Error())
		}
		err = inner
	}
}
