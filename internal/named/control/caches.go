package control

// SidecarCache is a cache, and whose it is.
type SidecarCache struct {
	Sidecar string `json:"sidecar"`
	Pid     int    `json:"pid"`
	Cache
}

// Caches are those of several sidecars.
func Caches(sidecars []Sidecar) []SidecarCache {
	list := []SidecarCache{}
	for _, s := range sidecars {
		for _, c := range s.State.Caches {
			list = append(list, SidecarCache{s.State.Instance, s.State.Pid, c})
		}
	}
	return list
}
