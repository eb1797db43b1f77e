# Writes the pages of section 3 from softnd.h: a page for each group of calls, such as snd_cq.3, and a
# link to it for each call. awk -v dir=OUTPUT -v version=VERSION -f man.awk softnd.h
function group(name,   part) {
	split(name, part, "_")
	return part[2] ~ /^(fabric|adapter|mr|window|cq|srq|endpoint|listener|connector|job)$/ ? "snd_" part[2] : "snd_status"
}
function text(s) {
	gsub(/\\/, "\\e", s)
	sub(/^[.']/, "\\\\\\&&", s)
	return s
}
/^\/\*/ { comment = ""; inside = 1 }
inside {
	line = $0
	sub(/^\/\* ?/, "", line); sub(/^ \* ?/, "", line); sub(/ *\*\/.*$/, "", line)
	comment = comment (comment == "" ? "" : "\n") text(line)
	if (/\*\//) inside = 0
	next
}
/^SND_API/ { declaration = "" ; open = 1 }
open {
	line = $0
	sub(/^SND_API /, "", line); sub(/^\t/, " ", line)
	declaration = declaration line
	if (!/;/) next
	open = 0
	name = declaration
	sub(/\(.*/, "", name); sub(/.*[ *]/, "", name)
	g = group(name)
	if (!(g in names)) order[++groups] = g
	names[g] = names[g] (names[g] == "" ? "" : ", ") name
	synopsis[g] = synopsis[g] ".PP\n.nh\n.B \"" declaration "\"\n.hy\n"
	page[g] = page[g] (comment == "" ? "" : ".PP\n" comment "\n")
	comment = ""
	calls[++count] = name
	of[name] = g
	next
}
/^(#|typedef|$)/ { comment = "" }
END {
	for (i = 1; i <= groups; i++) {
		g = order[i]; file = dir "/" g ".3"
		printf ".TH %s 3 \"\" \"softnd %s\" \"softnd\"\n.SH NAME\n%s \\- RDMA semantics over shared memory\n", g, version, names[g] > file
		printf ".SH LIBRARY\nlibsoftnd (\\-lsoftnd)\n.SH SYNOPSIS\n.B #include <softnd/softnd.h>\n%s", synopsis[g] > file
		printf ".SH DESCRIPTION\n%s", page[g] > file
		printf ".SH RETURN VALUE\nCalls of type snd_status return SND_SUCCESS or a failure.\n.BR snd_last_error (3)\nthen says what was wrong.\n" > file
		printf ".SH SEE ALSO\n" > file
		for (j = 1; j <= groups; j++)
			if (j != i) printf ".BR %s (3)\n", order[j] > file
		close(file)
	}
	for (i = 1; i <= count; i++)
		if (calls[i] != of[calls[i]]) {
			file = dir "/" calls[i] ".3"
			printf ".so man3/%s.3\n", of[calls[i]] > file
			close(file)
		}
}
