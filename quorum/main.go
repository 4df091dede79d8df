// Command quorum is a member of a replicated metadata log and the tool to ask and tell one things: see package cli.
package main

import (
	"os"

	"github.com/kraft-operator/kraft-operator/quorum/cli"
)

func main() { os.Exit(cli.Main()) }
