package config

import (
	"fmt"
	"slices"
	"strings"
)

// Render writes a properties file: the same bytes for the same values, in the order of Keys. Values may hold
// ${env:NAME}; so only the names of keys are checked here, and Parse checks the rest.
func Render(values map[string]string) ([]byte, error) {
	var unknown []string
	for name := range values {
		if !known(name) {
			unknown = append(unknown, name+suggest(name))
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return nil, fmt.Errorf("unknown key %s", strings.Join(unknown, ", "))
	}
	var b strings.Builder
	for _, k := range keys {
		if v, ok := values[k.Name]; ok {
			fmt.Fprintf(&b, "%s=%s\n", escape(k.Name, true), escape(v, false))
		}
	}
	return []byte(b.String()), nil
}

// Reference is how a value names an environment variable, which Parse replaces.
func Reference(env string) string { return "${env:" + env + "}" }

// Markdown is the content of docs/configuration.md.
func Markdown() string {
	var b strings.Builder
	b.WriteString(`# Configuration of a member

A member reads one properties file, in Java's syntax: ` + "`key=value`" + `, comments with ` + "`#`" + `, a line continued by ` + "`\\`" + `. A value may hold
` + "`${env:NAME}`" + `, which is replaced by that environment variable. An unknown key, a bad value or a missing key ends
the start with one line that names file, key, value and what is allowed. An empty value counts as not set.

Keys marked K have Kafka's name and meaning; the others are ours. This page is generated from the code.

| key | | allowed | default | meaning |
|---|---|---|---|---|
`)
	for _, k := range keys {
		mark, def := "", "`"+k.Default+"`"
		if k.Kafka {
			mark = "K"
		}
		if k.Default == "" {
			def = ""
		}
		if k.Required {
			def = "required"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", k.Name, mark, k.Type, def, k.Doc)
	}
	return b.String()
}
