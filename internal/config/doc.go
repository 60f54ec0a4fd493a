// Package config knows what a user may set: by flag, by environment, in a YAML file and in the one-line form of a
// pipeline. It reads, merges and checks all of it, finds plugins and models on disk, and keeps passwords out of sight.
//
// It refuses what it does not understand (unknown keys, unset variables, text after the end) and reports every mistake
// at once, each with its place. It talks to no database, prints nothing and reads the environment only through the
// function it is given.
package config
