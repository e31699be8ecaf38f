# bash completion of cloche(1); needs nothing but bash
# shellcheck shell=bash

_cloche_options()
{
	local shared="--local --server --require --allow-missing --screen-report --screen-reject --help"

	case $1 in
	run)
		echo "--timeout --memory --cpus --cpu-time --pids-limit --disk --open-files --output-limit --env --file" \
			"--stdin --artifact --output --force --network --environment --mode --buffered --json --quiet" \
			"--progress --verbose $shared"
		;;
	trigger) echo "--request $shared" ;;
	batch) echo "--jobs --quiet $shared" ;;
	doctor) echo "--json --require --allow-missing --help" ;;
	config) echo "--help" ;;
	serve) echo "--socket --listen --http-socket --behind-tls-proxy --help" ;;
	token) echo "--max-concurrent --rate --environments --expires --json --help" ;;
	env) echo "--local --server --json --help" ;;
	bench) echo "--json --help" ;;
	mcp) echo "--local --server --help" ;;
	history)
		echo "--status --since --name --tenant --limit --follow --json --script --stdout --stderr --db --help"
		;;
	esac
}

_cloche_words()
{
	mapfile -t COMPREPLY < <(compgen -W "$1" -- "$2")
}

# Whether an operand of `cloche run` (SCRIPT) stands before the cursor: what follows it is the script's.
_cloche_has_script()
{
	local i

	for ((i = 2; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		--) return 0 ;;
		-t | -m | -e | -o | --timeout | --memory | --cpus | --cpu-time | --pids-limit | --disk | --open-files | \
			--output-limit | --env | --file | --stdin | --artifact | --output | --network | --environment | --mode | \
			--server | --require | --allow-missing | --screen-report | --screen-reject)
			# bash makes "=" a word of its own: --timeout = 10
			[[ ${COMP_WORDS[i + 1]} == "=" ]] && ((i++))
			((i++))
			;;
		-?*) ;;
		*) return 0 ;;
		esac
	done
	return 1
}

_cloche()
{
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]}

	COMPREPLY=()
	if ((COMP_CWORD == 1)); then
		_cloche_words "run trigger batch doctor config serve env bench mcp history token --help --version" "$cur"
		return
	fi
	[[ $command == run ]] && _cloche_has_script && return
	if [[ $cur == -* ]]; then
		_cloche_words "$(_cloche_options "$command")" "$cur"
		return
	fi
	case $prev in
	--mode) _cloche_words "auto warm cold" "$cur" ;;
	--network) _cloche_words "loopback none" "$cur" ;;
	-o | --output) mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
	config) _cloche_words "check" "$cur" ;;
	--status)
		_cloche_words "ok error signaled timeout cpu_limit memory_limit output_limit cancelled rejected internal_error" "$cur"
		;;
	history) _cloche_words "show" "$cur" ;;
	token) _cloche_words "add list remove" "$cur" ;;
	esac
}

complete -o default -F _cloche cloche
