package raft

import "slices"

// quorumValue returns the largest value that a majority of the voters has reached, given one value of each voter
// (Unknown for a voter that was not heard of). It sorts its argument. 1 voter: its own; 2: the lower; 3: the middle;
// 4: the third; 5: the third.
func quorumValue(voters []int64) int64 {
	if len(voters) == 0 {
		return Unknown
	}
	slices.Sort(voters)
	return voters[len(voters)-1-len(voters)/2]
}

// commitPoint is the high watermark rule: what a majority holds on disk is committed once it includes the first record of
// the leader's own epoch. Older records commit only through it (the Raft paper's figure 8). It never falls.
func commitPoint(current, epochStart int64, flushed []int64) int64 {
	if reached := quorumValue(flushed); reached > epochStart && reached > current {
		return reached
	}
	return current
}
