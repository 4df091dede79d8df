package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kraft-operator/kraft-operator/quorum/config"
	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
)

// formatFlags are those of kafka-storage format, short forms included, and our --directory-id.
type formatFlags struct {
	clusterID, file    string
	standalone         bool
	initialControllers string
	noInitial          bool
	ignoreFormatted    bool
	directoryID        string
	features           []string
}

// formatted is what -o json prints.
type formatted struct {
	Directory   string `json:"directory"`
	ClusterID   string `json:"clusterId"`
	NodeID      int32  `json:"nodeId"`
	DirectoryID string `json:"directoryId"`
	Voters      int    `json:"voters"`  // in the bootstrap checkpoint
	Existed     bool   `json:"existed"` // it was formatted already, with the same ids
}

func newFormat(e *Env) *cobra.Command {
	var f formatFlags
	cmd := &cobra.Command{
		Use:   "format --cluster-id ID --config FILE (--standalone | --initial-controllers LIST | --no-initial-controllers)",
		Short: "Give a member's empty directory its identity",
		Long: `Give a member's empty directory its identity, as kafka-storage format does: cluster id, node id, directory id, and
the voters a new quorum begins with.

The first voters of a new quorum are formatted with the same --initial-controllers on each (or one with --standalone);
whoever joins later with --no-initial-controllers. With controller.quorum.voters in the configuration none of the three
is allowed. Formatting again with the same ids succeeds and changes nothing, with others it fails.`,
		Example: `  quorum format -t jDyYd8cTQHyrPfDW3Bqw4w -c quorum.properties --standalone
  quorum format -t jDyYd8cTQHyrPfDW3Bqw4w -c quorum.properties \
    -I 0@q-0:9093:b8tRS7h4TJ2Vt43Dp85v2A,1@q-1:9093:Nkij_D9XRiYKNb41SiJo7Q,2@q-2:9093:4-e97nI7eHPYKfEDtW8rtQ`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().StringVarP(&f.clusterID, "cluster-id", "t", "", "the quorum's id (required unless the configuration sets cluster.id)")
	cmd.Flags().StringVarP(&f.file, "config", "c", "", "the member's properties file (required)")
	cmd.Flags().BoolVarP(&f.standalone, "standalone", "s", false, "a new quorum whose only voter is this member")
	cmd.Flags().StringVarP(&f.initialControllers, "initial-controllers", "I", "", "a new quorum with these voters: ID@HOST:PORT:DIRECTORY-ID,…")
	cmd.Flags().BoolVarP(&f.noInitial, "no-initial-controllers", "N", false, "join an existing quorum, without a vote at first")
	cmd.Flags().BoolVarP(&f.ignoreFormatted, "ignore-formatted", "g", false, "leave a formatted directory alone, whatever its ids")
	cmd.Flags().StringSliceVarP(&f.features, "feature", "f", nil, "level of a feature: kraft.version=1, or 0 with controller.quorum.voters")
	cmd.Flags().StringVar(&f.directoryID, "directory-id", "", "id of this directory (default: from --initial-controllers, else random)")
	o := outputFlag(cmd)
	cmd.RunE = func(*cobra.Command, []string) error { return e.format(f, *o) }
	return cmd
}

func (e *Env) format(f formatFlags, o output) error {
	if f.file == "" {
		return errors.New("--config is missing: want the member's properties file")
	}
	c, err := e.readConfig(f.file)
	if err != nil {
		return err
	}
	options, err := f.options(c)
	if err != nil {
		return err
	}
	options.Timestamp = time.Now().UnixMilli()
	_, err = storage.ReadMeta(e.FS, c.LogDir)
	existed := err == nil
	if err := storage.Format(e.FS, c.LogDir, options); err != nil {
		return err
	}
	meta, err := storage.ReadMeta(e.FS, c.LogDir)
	if err != nil {
		return err
	}
	if o == asJSON {
		return printJSON(e.Stdout, formatted{c.LogDir, meta.ClusterID, int32(meta.NodeID), meta.DirectoryID.String(), len(options.InitialVoters), existed})
	}
	did := "formatted"
	if existed {
		did = "is formatted already:"
	}
	if existed {
		_, err = fmt.Fprintf(e.Stdout, "%s %s cluster %s, node %d, directory %s\n", c.LogDir, did, meta.ClusterID, meta.NodeID, meta.DirectoryID)
	} else {
		_, err = fmt.Fprintf(e.Stdout, "%s %s: cluster %s, node %d, directory %s\n", did, c.LogDir, meta.ClusterID, meta.NodeID, meta.DirectoryID)
	}
	return err
}

// options checks the flags against each other and the configuration, as kafka-storage does (KAFKA-19489, KAFKA-17794,
// KAFKA-18028, KAFKA-17868), and says what to write.
func (f formatFlags) options(c *config.Config) (storage.FormatOptions, error) {
	o := storage.FormatOptions{ClusterID: f.clusterID, NodeID: c.NodeID, Topic: c.TopicName, KRaftVersion: 1, IgnoreFormatted: f.ignoreFormatted}
	switch {
	case o.ClusterID == "":
		o.ClusterID = c.ClusterID
	case c.ClusterID != "" && c.ClusterID != o.ClusterID:
		return o, fmt.Errorf("--cluster-id %s: %s sets cluster.id=%s: want the same", o.ClusterID, c.File, c.ClusterID)
	}
	if o.ClusterID == "" {
		return o, errors.New("--cluster-id is missing: want the quorum's id")
	}
	if f.directoryID != "" {
		var err error
		if o.DirectoryID, err = raft.ParseUUID(f.directoryID); err != nil {
			return o, fmt.Errorf("--directory-id: %w", err)
		}
	}
	chosen := 0
	for _, set := range []bool{f.standalone, f.initialControllers != "", f.noInitial} {
		if set {
			chosen++
		}
	}
	static := len(c.StaticVoters) > 0
	switch {
	case chosen > 1:
		return o, errors.New("want only one of --standalone, --initial-controllers and --no-initial-controllers")
	case static && (f.standalone || f.initialControllers != ""):
		return o, fmt.Errorf("%s sets controller.quorum.voters: want neither --standalone nor --initial-controllers, or there would be two voter sets", c.File)
	case !static && chosen == 0:
		return o, errors.New("want one of --standalone, --initial-controllers and --no-initial-controllers")
	case c.ObserverOnly && (f.standalone || f.initialControllers != ""):
		return o, fmt.Errorf("%s sets observer.only=true: want --no-initial-controllers", c.File)
	case static:
		o.KRaftVersion = 0
	case f.standalone:
		if o.DirectoryID.IsZero() {
			var err error
			if o.DirectoryID, err = storage.NewDirectoryID(nil); err != nil {
				return o, err
			}
		}
		self, _ := raft.Find(c.Advertised, c.ControllerListener)
		if self.Port == 0 {
			return o, fmt.Errorf("%s advertises %s with port 0: want a fixed port, it is stored in the voter set", c.File, c.ControllerListener)
		}
		o.InitialVoters = raft.VoterSet{{
			Key: raft.ReplicaKey{ID: c.NodeID, DirectoryID: o.DirectoryID}, Endpoints: []raft.Endpoint{self}, KRaft: raft.VersionRange{Max: 1},
		}}
	case f.initialControllers != "":
		voters, err := parseControllers(f.initialControllers, c.ControllerListener)
		if err != nil {
			return o, fmt.Errorf("--initial-controllers: %w", err)
		}
		self, ok := voters.ByID(c.NodeID)
		if !ok {
			return o, fmt.Errorf("--initial-controllers has no entry for node.id=%d of %s", c.NodeID, c.File)
		}
		if !o.DirectoryID.IsZero() && o.DirectoryID != self.Key.DirectoryID {
			return o, fmt.Errorf("--directory-id %s: --initial-controllers has %s for node %d: want the same", o.DirectoryID, self.Key.DirectoryID, c.NodeID)
		}
		o.DirectoryID, o.InitialVoters = self.Key.DirectoryID, voters
	}
	return o, f.checkFeatures(o.KRaftVersion, c.File)
}

// checkFeatures refuses a level other than the one that the voters call for: 1 unless they are static.
func (f formatFlags) checkFeatures(kraftVersion int16, file string) error {
	for _, feature := range f.features {
		name, level, _ := strings.Cut(feature, "=")
		switch {
		case name != "kraft.version":
			return fmt.Errorf("--feature %s: want kraft.version=LEVEL, there is no other feature", feature)
		case level == strconv.Itoa(int(kraftVersion)):
		case kraftVersion == 0:
			return fmt.Errorf("--feature %s: %s sets controller.quorum.voters: want kraft.version=0", feature, file)
		default:
			return fmt.Errorf("--feature %s: %s has no controller.quorum.voters: want kraft.version=1", feature, file)
		}
	}
	return nil
}

// parseControllers reads ID@HOST:PORT:DIRECTORY-ID,… (IPv6 in brackets).
func parseControllers(list, listener string) (raft.VoterSet, error) {
	var voters []raft.Voter
	for entry := range strings.SplitSeq(list, ",") {
		entry = strings.TrimSpace(entry)
		bad := func(why string) error {
			return fmt.Errorf("%q: %s: want ID@HOST:PORT:DIRECTORY-ID", entry, why)
		}
		id, rest, ok := strings.Cut(entry, "@")
		n, err := strconv.ParseInt(id, 10, 32)
		if !ok || err != nil || n < 0 {
			return nil, bad("no node id")
		}
		cut := strings.LastIndexByte(rest, ':')
		if cut < 0 {
			return nil, bad("no directory id")
		}
		directory, err := raft.ParseUUID(rest[cut+1:])
		if err != nil || directory.IsZero() {
			return nil, bad(fmt.Sprintf("%q is no directory id", rest[cut+1:]))
		}
		host, port, err := config.ParseHostPort(rest[:cut])
		if err != nil || host == "" || port == 0 {
			return nil, bad(fmt.Sprintf("%q is no HOST:PORT", rest[:cut]))
		}
		for _, v := range voters {
			if v.Key.DirectoryID == directory {
				return nil, bad(fmt.Sprintf("node %d has the same directory id", v.Key.ID))
			}
		}
		voters = append(voters, raft.Voter{
			Key:       raft.ReplicaKey{ID: raft.NodeID(n), DirectoryID: directory},
			Endpoints: []raft.Endpoint{{Name: listener, Host: host, Port: port}},
			KRaft:     raft.VersionRange{Max: 1},
		})
	}
	return raft.NewVoterSet(voters...)
}
