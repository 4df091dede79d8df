// Package wire is the border between Kafka's protocol and our own types: frames, headers, versions, messages.
//
// Everything that a connection carries passes here and nothing else does: package kmsg appears in wire and in
// quorum/client only. Decoding is the place where bytes of strangers become values, so each length is checked before
// anything is allocated for it, and requests for another topic or partition are answered here.
//
//	Codec.Decode          request frame  → Request   (server side; some requests are answered by wire itself)
//	Codec.Encode…         response value → Frame     (server side)
//	Codec.EncodeRequest   raft.Request   → frame     (towards a peer)
//	Codec.DecodeResponse  response frame → Reply     (from a peer)
package wire
