package server

import (
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// OB-06: what is an integer is written as one, as long as a float64 holds it exactly.
func TestOB06IntegersHaveNoExponent(t *testing.T) {
	for _, c := range []struct {
		value float64
		want  string
	}{
		{0, "0"},
		{-1, "-1"},
		{1_000_000, "1000000"},
		{123_456_789_012, "123456789012"},
		{1<<53 - 1, "9007199254740991"},
		{1 << 53, "9007199254740992"},
		{-1 << 53, "-9007199254740992"},
		{0.25, "0.25"},
		{1_234_567.5, "1.2345675e+06"},
		{math.NaN(), "NaN"},
		{math.Inf(1), "+Inf"},
	} {
		var b strings.Builder
		e := exposition{w: &b}
		e.gauge("offset", "An offset.", c.value, "replica", "1")
		if want := "# HELP offset An offset.\n# TYPE offset gauge\noffset{replica=\"1\"} " + c.want + "\n"; b.String() != want {
			t.Errorf("got %q, want %q", b.String(), want)
		}
	}
}

// OB-06: the idle ratio is a share of the time. The mean of these samples would be 1/1002: one that waited, 1001 that did not.
func TestOB06IdleRatioIsByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var idle sampled
		check := func(when string, want float64) {
			t.Helper()
			if got := idle.share(); math.Abs(got-want) > 1e-9 {
				t.Errorf("%s the idle ratio is %v, want %v", when, got, want)
			}
		}
		idle.add(0) // as the loop begins
		time.Sleep(2 * time.Second)
		idle.add(2)
		check("after a wait of 2 s", 1)
		idle.add(0)
		for range 1000 {
			time.Sleep(time.Millisecond) // busy
			idle.add(0)
		}
		check("after 2 s of waiting and 1 s of work", 2./3)
		time.Sleep(time.Second)
		check("while an event takes a second", 2./4)
		time.Sleep(2 * windowSize)
		check("in a loop that hangs", 0)
	})
}
