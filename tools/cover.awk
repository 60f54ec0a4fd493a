# cover.awk: reads Go coverage profiles and prints the coverage of each package and of all. Fails below the given percentage.
#
#   awk -v module=example.com/module/ -v least=80 -f tools/cover.awk cover.out more.out
#
# A profile has a block once for each test binary; it is covered if one of them reached it. Generated files do not count.

FNR == 1 || $1 ~ /\.pb\.go:/ { next }

{
    if (!($1 in statements)) statements[$1] = $2
    if ($3 > 0) reached[$1] = 1
}

END {
    for (block in statements) {
        package = block
        sub(/\/[^\/]*$/, "", package)
        if (index(package, module) == 1) package = substr(package, length(module) + 1)
        all[package] += statements[block]
        total += statements[block]
        if (block in reached) {
            hit[package] += statements[block]
            total_hit += statements[block]
        }
    }
    if (total == 0) {
        print "coverage: the profile names no statement" > "/dev/stderr"
        exit 1
    }
    sorted = "sort"
    for (package in all) printf "%-28s %5.1f %% of %d statements\n", package, 100 * hit[package] / all[package], all[package] | sorted
    close(sorted)
    percent = 100 * total_hit / total
    printf "%-28s %5.1f %% of %d statements, at least %s %% wanted\n", "core", percent, total, least
    if (percent < least) {
        print "coverage: below the limit" > "/dev/stderr"
        exit 1
    }
}
