package host

// looksAtMembers is how often in a row the known processes of a group are measured before all processes of the machine
// are searched for new ones: a server of databases has hundreds.
const looksAtMembers = 10

// group is a process with what it has started.
type group struct {
	id      int // of its first process
	looks   int
	members []string // their folders in /proc
}

func groupMemory(pgid int) int64 { return (&group{id: pgid}).memory() }
