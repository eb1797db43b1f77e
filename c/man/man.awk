# Writes the pages of section 3 from softnd.h: softnd.3 with the types and constants, a page for each call, and a link to
# softnd.3 for each type. awk -v dir=DIRECTORY -v version=VERSION -v date=DATE -f man.awk statuses softnd.h
#
# A comment before a call describes the call, and begins with its name. A comment that an empty line follows begins a part
# of the header: its title, a colon or a full stop, and text. Any other comment describes the types after it.

# roff escapes text for roff.
function roff(s) {
	gsub(/\\/, "\\e", s)
	gsub(/-/, "\\-", s)
	return s
}

# paragraphs returns a comment as roff. An empty line of the comment begins a paragraph.
function paragraphs(s,   text, n, i, out) {
	n = split(s, text, "\n\n")
	for (i = 1; i <= n; i++)
		out = out (i > 1 ? ".PP\n" : "") fold(roff(text[i]))
	return out
}

function code(s) {
	return ".nf\n" roff(s) ".fi\n"
}

# fold breaks text into lines of at most 78 characters. A line must not begin like a request of roff.
function fold(s,   word, n, i, line, out) {
	n = split(s, word, /[ \n]/)
	for (i = 1; i <= n; i++) {
		if (word[i] !~ /^[.']/ && line != "" && length(line " " word[i]) > 78) {
			out = out line "\n"
			line = ""
		}
		line = line (line == "" ? "" : " ") word[i]
	}
	return out line "\n"
}

# summary returns the first sentence of a call's comment, without the name of the call and the full stop.
function summary(s, name) {
	gsub(/\n/, " ", s)
	if (match(s, /\.( |$)/))
		s = substr(s, 1, RSTART - 1)
	return substr(s, length(name) + 2)
}

# prototype returns the lines of a declaration. Continued lines are aligned with the first argument.
function prototype(s,   at, out, line, indent, part, n, i) {
	at = index(s, "(")
	indent = sprintf("%" at "s", "")
	line = substr(s, 1, at)
	n = split(substr(s, at + 1), part, ", ")
	for (i = 1; i <= n; i++) {
		if (i > 1 && length(line part[i]) > 70) {
			out = out ".B \"" line "\"\n"
			line = indent
		}
		line = line part[i] (i < n ? ", " : "")
	}
	return out ".B \"" line "\"\n"
}

function begin_page(name, what) {
	file = dir "/" name ".3"
	printf ".TH %s 3 %s \"softnd %s\" \"softnd\"\n.SH NAME\n%s", toupper(name), date, version, fold(name " \\- " what) > file
	printf ".SH LIBRARY\nlibsoftnd (\\-lsoftnd)\n.SH SYNOPSIS\n.nf\n.B #include <softnd/softnd.h>\n" > file
}

# types_of returns the definitions of the structs that a declaration names, and of those that these name.
function types_of(text,   t, types, seen, found) {
	do {
		found = 0
		for (t = 1; t <= structs; t++)
			if (!(t in seen) && match(text, "(^|[^a-z_])" struct[t] "[^a-z_]")) {
				text = text definition[struct[t]]
				types = types (types == "" ? "" : ".PP\n") code(definition[struct[t]])
				seen[t] = found = 1
			}
	} while (found)
	return types
}

function write_call(i,   name, types) {
	name = calls[i]
	begin_page(name, roff(summary(about[name], name)))
	printf ".PP\n%s.fi\n", prototype(declared[name]) > file
	types = types_of(declared[name])
	printf ".SH DESCRIPTION\n%s", paragraphs(about[name]) > file
	if (types != "")
		printf ".SS Types\n%s", types > file
	if (declared[name] ~ /^snd_status /) {
		printf ".SH RETURN VALUE\n.B SND_SUCCESS\nor the status of a failure. After a failure\n.BR snd_last_error (3)\n" > file
		printf "returns what was wrong, and what to do.\n%s", statuses[name] > file
	}
	if (name in results)
		printf ".SH RESULT\nThe status of the request's result in the completion queue:\n%s", results[name] > file
	printf ".SH SEE ALSO\n.BR softnd (3)" > file
	see_also(i, part_of[name])
	printf "\n" > file
	close(file)
}

# see_also lists the other calls of a part of the header.
function see_also(i, part,   j) {
	for (j = 1; j <= count; j++)
		if (j != i && part_of[calls[j]] == part)
			printf ",\n.BR %s (3)", calls[j] > file
}

function write_overview(   i, t) {
	begin_page("softnd", "RDMA semantics over shared memory")
	printf ".fi\n.SH DESCRIPTION\n%s", overview > file
	for (i = 1; i <= parts; i++)
		printf ".SS %s\n%s", roff(title[i]), body[i] > file
	printf ".SH SEE ALSO\n.BR ndrun (1)\n" > file
	close(file)
	for (t = 1; t <= structs; t++) {
		file = dir "/" struct[t] ".3"
		printf ".so man3/softnd.3\n" > file
		close(file)
	}
}

# status_item returns a status and its meaning as an item of a list.
function status_item(status, meaning) {
	return ".TP\n.B SND_" status "\n" fold(roff(meaning))
}

# The file statuses.
FILENAME ~ /statuses$/ {
	split($0, field, "\t")
	if (field[1] == "general")
		general[field[2]] = field[3]
	else if (/^snd_/)
		call = field[1]
	else if (field[2] ~ /^result /)
		results[call] = results[call] status_item(substr(field[2], 8), field[3])
	else if (field[2] != "")
		statuses[call] = statuses[call] status_item(field[2], field[3] != "" ? field[3] : general[field[2]])
	next
}

# add adds a paragraph to the present part.
function add(text) {
	body[parts] = body[parts] (body[parts] == "" ? "" : ".PP\n") text
}

# A comment of its own lines.
/^\/\*/ { comment = ""; inside = 1; first = 1 }
inside {
	line = $0
	end = sub(/ *\*\/.*$/, "", line)
	sub(/^\/\* ?/, "", line); sub(/^ \* ?/, "", line)
	if (!(end && line == ""))
		comment = comment (first ? "" : "\n") line
	first = 0
	inside = !end
	next
}

# The end of a part's comment.
/^$/ && comment != "" && seen_code {
	title[++parts] = comment
	sub(/[:.].*/, "", title[parts])
	rest = comment
	if (sub(/^[^:.]*: */, "", rest))
		body[parts] = paragraphs(toupper(substr(rest, 1, 1)) substr(rest, 2))
	else if (sub(/^[^.]*\. +/, "", rest) || sub(/^[^.]*\.\n/, "", rest))
		body[parts] = paragraphs(rest)
	comment = ""
}
/^#ifndef SOFTND/ && comment != "" { # the comment of the file
	sub(/^[^\n]*\n\n/, "", comment)
	overview = paragraphs(comment)
	comment = ""
}
/^typedef uint32_t snd_status/ { seen_code = 1 }

# A type or a constant.
/^#define SND_[A-Z_]+(\([a-z]+\))? .*[0-9]/ || /^typedef .*[;{]$/ { open_type = 1; text = "" }
open_type {
	text = text $0 "\n"
	if (/\{$/) { depth = 1; name = $3 }
	if (/^\}/) {
		depth = 0
		if (text ~ /^typedef struct/) { struct[++structs] = name; definition[name] = text }
	}
	if (depth) next
	open_type = 0
	if (!parts)
		title[++parts] = "Statuses and handles"
	if (comment != "")
		add(paragraphs(comment))
	# Consecutive lines are one block.
	if (comment == "" && sub(/\.fi\n$/, "", body[parts]))
		body[parts] = body[parts] roff(text) ".fi\n"
	else
		add(code(text))
	comment = ""
	next
}

# A call.
/^SND_API/ { declaration = ""; open_call = 1 }
open_call {
	line = $0
	sub(/^SND_API (SND_NORETURN )?/, "", line); sub(/^\t/, " ", line)
	declaration = declaration line
	if (!/;/) next
	open_call = 0
	name = declaration
	sub(/\(.*/, "", name); sub(/.*[ *]/, "", name)
	calls[++count] = name
	declared[name] = declaration
	about[name] = comment
	part_of[name] = parts
	body[parts] = body[parts] ".TP\n.BR " name " (3)\n" fold(roff(summary(comment, name)))
	comment = ""
	next
}

END {
	for (i = 1; i <= count; i++)
		write_call(i)
	write_overview()
}
