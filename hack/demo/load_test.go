package main

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// stored returns a log in which writer 0 and 1 have two records each, and what the
// load would remember of them.
func stored() (*load, map[string][]int64, map[string]string) {
	l := &load{appended: 4}
	l.acked[0], l.acked[1] = []int64{3, 5}, []int64{4, 6}
	offsets := map[string][]int64{endOfStream: {7}}
	values := map[string]string{endOfStream: endOfStream}
	for w := range 2 {
		for n, offset := range l.acked[w] {
			k := string(key(w, n))
			offsets[k] = []int64{offset}
			values[k] = fmt.Sprintf("value %d of writer %d", n, w)
		}
	}
	return l, offsets, values
}

func TestVerdictCountsWhatIsWrong(t *testing.T) {
	first := string(key(0, 0))
	for name, c := range map[string]struct {
		spoil                       func(*load, map[string][]int64, map[string]string)
		lost, duplicated, disorderd int
		bad                         bool
	}{
		"all is there": {spoil: func(*load, map[string][]int64, map[string]string) {}},
		"a record that was never acknowledged is no fault": {spoil: func(_ *load, o map[string][]int64, v map[string]string) {
			o["w2-0000000"], v["w2-0000000"] = []int64{9}, "value 0 of writer 2"
		}},
		"a record is missing":       {spoil: func(_ *load, o map[string][]int64, _ map[string]string) { delete(o, first) }, lost: 1, bad: true},
		"a record is elsewhere":     {spoil: func(_ *load, o map[string][]int64, _ map[string]string) { o[first] = []int64{8} }, lost: 1, bad: true},
		"a value is another":        {spoil: func(_ *load, _ map[string][]int64, v map[string]string) { v[first] = "" }, lost: 1, bad: true},
		"a record is there twice":   {spoil: func(_ *load, o map[string][]int64, _ map[string]string) { o[first] = append(o[first], 8) }, duplicated: 1, bad: true},
		"the order is another":      {spoil: func(l *load, _ map[string][]int64, _ map[string]string) { slices.Reverse(l.acked[0]) }, lost: 2, disorderd: 1, bad: true},
		"an append had an error":    {spoil: func(l *load, _ map[string][]int64, _ map[string]string) { l.record(0, 0, errors.New("no")) }, bad: true},
		"nothing was ever appended": {spoil: func(l *load, _ map[string][]int64, _ map[string]string) { *l = load{} }, bad: true},
	} {
		l, offsets, values := stored()
		c.spoil(l, offsets, values)
		v := l.compare(offsets, values)
		if v.lost != c.lost || v.duplicated != c.duplicated || v.disordered != c.disorderd || v.good() == c.bad {
			t.Errorf("%s: %s; good: %v", name, v, v.good())
		}
	}
}

func TestLongestGapCountsFromTheMarkAndToNow(t *testing.T) {
	l, _, _ := stored()
	if got := l.longestGap(); got != 0 {
		t.Errorf("before the client runs the gap is %s, want 0", got)
	}
	if l.client, _ = kafkaClient(nil, "127.0.0.1:1"); l.client == nil {
		t.Fatal("no client")
	}
	defer l.close()
	l.longest, l.lastAck = time.Second, time.Now()
	if got := l.longestGap(); got != time.Second {
		t.Errorf("gap is %s, want the longest one seen", got)
	}
	l.lastAck = time.Now().Add(-time.Minute)
	if got := l.longestGap(); got < time.Minute {
		t.Errorf("gap is %s, want the one that is going on", got)
	}
	if l.mark(); l.longestGap() >= time.Second {
		t.Errorf("mark did not begin anew: %s", l.longestGap())
	}
}

func TestColumnsOfKubectl(t *testing.T) {
	titles, values := columns("NAME     LEADER   VOTERS\norders   2        3/3\n")
	if !slices.Equal(titles, []string{"NAME", "LEADER", "VOTERS"}) || !slices.Equal(values, []string{"orders", "2", "3/3"}) {
		t.Errorf("%q %q", titles, values)
	}
}
