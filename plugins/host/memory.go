package host

// looksAtMembers is how many measurements pass between two searches of all processes for new members of a group. A
// database server has hundreds of processes.
const looksAtMembers = 10

// group is a process group: a plugin and the processes it has started.
type group struct {
	id      int // process id of its leader
	looks   int
	members []string // their folders in /proc
}

func groupMemory(pgid int) int64 { return (&group{id: pgid}).memory() }
