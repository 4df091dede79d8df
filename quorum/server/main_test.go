package server

import (
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// httpClient keeps no connection, so that none outlives its test.
var httpClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}

// No test may leave a goroutine behind: who starts one waits for it.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
