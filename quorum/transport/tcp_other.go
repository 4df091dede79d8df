//go:build !linux

package transport

import "time"

func setUserTimeout(uintptr, time.Duration) {}
