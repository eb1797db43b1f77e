# Writes a C file that wraps each call of softnd.h that returns a status: one that the manual page of the call does not list ends the
# program. The linker puts the wrappers in the place of the calls. awk -v out=FILE.c -v wrap=OPTIONS -f statuses.awk ../man/statuses softnd.h

FNR == 1 { part++ }

part == 1 && /^snd_/ { call = $1 }
part == 1 && /^\t[A-Z]/ { listed[call] = listed[call] ", SND_" $1 }

part == 2 && FNR == 1 {
	print "#include <softnd/softnd.h>" >out
	print "#include <stdio.h>" >out
	print "#include <stdlib.h>\n" >out
	print "static snd_status known(const char *call, const snd_status *listed, size_t n, snd_status s)" >out
	print "{" >out
	print "\tfor (size_t i = 0; i < n; i++)" >out
	print "\t\tif (listed[i] == s)" >out
	print "\t\t\treturn s;" >out
	print "\tfprintf(stderr, \"%s returned \\\"%s\\\" (%s), which c/man/statuses does not list\\n\", call, snd_status_name(s), snd_last_error());" >out
	print "\tabort();" >out
	print "}" >out
}
part == 2 && /^SND_API/ { declaration = ""; open = 1 }
open {
	line = $0
	sub(/^SND_API (SND_NORETURN )?/, "", line); sub(/^\t/, " ", line)
	declaration = declaration line
	if (!/;/) next
	open = 0
	if (declaration !~ /^snd_status /) next
	name = arguments = declaration
	sub(/\(.*/, "", name); sub(/^snd_status /, "", name)
	sub(/^[^(]*\(/, "", arguments); sub(/\);.*$/, "", arguments)
	n = split(arguments, argument, /, */)
	passed = ""
	for (i = 1; i <= n; i++) {
		sub(/\[.*\]$/, "", argument[i]); sub(/^.*[ *]/, "", argument[i])
		passed = passed (i > 1 ? ", " : "") argument[i]
	}
	print "--wrap=" name >wrap
	printf "\nsnd_status __real_%s(%s);\nsnd_status __wrap_%s(%s);\nsnd_status __wrap_%s(%s)\n{\n", name, arguments, name, arguments, name, arguments >out
	printf "\tstatic const snd_status listed[] = {SND_SUCCESS%s};\n", listed[name] >out
	printf "\treturn known(\"%s\", listed, sizeof listed / sizeof *listed, __real_%s(%s));\n}\n", name, name, passed >out
}
