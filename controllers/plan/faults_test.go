package plan

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
)

// TestTokensAreReasons: every token that the quorum's code can end with is known here, none is made up, and each is a
// reason in camel case (ST-04 LOG_CORRUPT, ST-05 STATE_FILE_CORRUPT, ST-07 SNAPSHOT_MISSING, ST-18 CLUSTER_ID_MISMATCH).
func TestTokensAreReasons(t *testing.T) {
	constant := regexp.MustCompile(`(?:Token|FatalReason)\s*=\s*"([A-Z_]+)"`)
	var declared []string
	err := filepath.WalkDir("../../quorum", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		code, err := os.ReadFile(path)
		for _, m := range constant.FindAllStringSubmatch(string(code), -1) {
			declared = append(declared, m[1])
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(declared)
	if declared = slices.Compact(declared); !slices.Equal(declared, tokens) {
		t.Errorf("the quorum ends with %v,\nwe know of %v", declared, tokens)
	}

	reason := regexp.MustCompile(`^[A-Z][A-Za-z]+$`)
	seen := map[string]bool{}
	for _, token := range tokens {
		r := tokenReason(token)
		if !reason.MatchString(r) || seen[r] {
			t.Errorf("%s becomes %q", token, r)
		}
		seen[r] = true
	}
	for token, want := range map[string]string{
		"LOG_CORRUPT": "LogCorrupt", "STATE_FILE_CORRUPT": "StateFileCorrupt", "DISK_IO_ERROR": "DiskIOError",
		"CLUSTER_ID_MISMATCH": "ClusterIDMismatch", "SNAPSHOT_MISSING": "SnapshotMissing", "DISK_FULL": v1alpha1.ReasonDiskFull,
		"TRUNCATION_BELOW_HW": "TruncationBelowHW", "UP_TO_DATE": "", "": "",
	} {
		if got := tokenReason(token); got != want {
			t.Errorf("%q becomes %q, want %q", token, got, want)
		}
	}
}

// TestNoMajority: what QuorumAvailable=False says when voters are why.
func TestNoMajority(t *testing.T) {
	for name, c := range map[string]struct {
		o            Observation
		reason, text string // a part of the message
	}{
		"all is well":                                {o: quiet()},
		"one is down":                                {o: quiet(crashed("LOG_CORRUPT", 2))},
		"ST-02 one has no room":                      {o: quiet(full(2), unready(2))},
		"ST-02 two have no room":                     {quiet(full(0, 2), unready(0, 2)), v1alpha1.ReasonDiskFull, "voter 0: its disk"},
		"ST-02 the only one has no room":             {build(1, 0, full(0)), v1alpha1.ReasonDiskFull, "0 of 1"},
		"ST-02 one has no room, another is down":     {quiet(full(2), unready(2), waiting("Unschedulable", 0)), v1alpha1.ReasonDiskFull, "voter 2: its disk"},
		"ST-02 all have ended for want of it":        {quiet(crashed("DISK_FULL", 0, 1, 2), noView), v1alpha1.ReasonDiskFull, "voter 2: DISK_FULL"},
		"ST-04 two are damaged":                      {quiet(crashed("LOG_CORRUPT", 0, 2), noLeader), "LogCorrupt", "voter 0: LOG_CORRUPT; voter 2: LOG_CORRUPT"},
		"a fault that is not why: two have no node":  {quiet(crashed("LOG_CORRUPT", 1), waiting("Unschedulable", 0, 2), noView), v1alpha1.ReasonNoMajorityReady, "0 of 3"},
		"two have no Pod":                            {quiet(noPod(0, 2), noView), v1alpha1.ReasonNoMajorityReady, "1 of 3"},
		"ST-23 two have no claim":                    {quiet(noPod(0, 2), noClaim(0, 2), noLeader), v1alpha1.ReasonMajorityLost, "1 of 3"},
		"ST-23 two have other disks":                 {quiet(emptied(0, 2), noLeader), v1alpha1.ReasonMajorityLost, "1 of 3"},
		"claims that were never made have no disks":  {build(3, 0, unsealed, noPod(0, 1, 2), noClaim(0, 1, 2), noView), v1alpha1.ReasonNoMajorityReady, "0 of 3"},
		"two of five are lost, and three are enough": {o: build(5, 0, noPod(0, 2), noClaim(0, 2))},
	} {
		t.Run(name, func(t *testing.T) {
			if got := NoMajority(c.o); got.Reason != c.reason || !strings.Contains(got.Message, c.text) {
				t.Errorf("got %s: %s, want %s: …%s…", got.Reason, got.Message, c.reason, c.text)
			}
		})
	}
}
