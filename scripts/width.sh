#!/usr/bin/env bash
# No line of Rust is wider than 100 columns, code and comments alike: rustfmt breaks neither comments nor texts in quotes, nor what
# stands in most macros. Only what cannot be broken may be wider: rows of tables and code blocks in comments, raw strings, and a
# single word, such as an address. --self-test shows that a wide line of each kind is found, or let pass.
set -euo pipefail
cd "$(dirname "$0")/.."

wide() { # files; prints file:line: width of each line that is too wide
  LC_ALL=C.UTF-8 perl -CSD -ne '
    if ($. == 1) { ($fenced, $raw) = (0, undef) }
    chomp;
    my $line = $_;
    my $exempt = 0;
    if (defined $raw) { # within a raw string that began above
      $exempt = 1;
      if ((my $end = index $line, "\"$raw") >= 0) { $line = substr $line, $end + 1 + length $raw; undef $raw }
      else { $line = "" }
    }
    if (!$exempt and my ($text) = $line =~ m{^\s*//[/!]?(.*)}) {
      my $fence = $text =~ /^\s*(```|~~~)/;
      $exempt = $fenced || $fence || $text =~ /^\s*\|/ || $text =~ /^\s*\S+$/;
      $fenced = !$fenced if $fence;
    } else {
      $fenced = 0;
      # Quotes that are characters or texts begin no raw string.
      while ($line =~ m{\G(?://.*|\x27(?:\\.[^\x27]*|[^\x27\\])\x27|"(?:\\.|[^"\\])*"|\b[bc]?r(\#*)"|.)}g) {
        next unless defined $1;
        $exempt = 1;
        $raw = $1;
        my $end = index $line, "\"$raw", pos $line;
        last if $end < 0;
        pos($line) = $end + 1 + length $raw;
        undef $raw;
      }
    }
    printf "%s:%d: %d columns\n", $ARGV, $., length if !$exempt && length > 100;
    close ARGV if eof;
  ' "$@"
}

self_test() {
  local file words wide
  file=$(mktemp --suffix .rs)
  trap 'rm -f "$file"' RETURN
  words=$(printf 'word %.0s' {1..24}) wide=${words// /_}
  expect() { # found or passes, what, text
    printf '%b\n' "$3" >"$file"
    if [ -n "$(wide "$file")" ]; then set -- "$1" "$2" found; else set -- "$1" "$2" passes; fi
    [ "$1" = "$3" ] || { echo "width: $2: $3 instead of $1" >&2; return 1; }
  }
  expect found "a comment" "// $words" &&
    expect found "a doc comment" "    /// $words" &&
    expect found "code" "let a = [$wide, $wide];" &&
    expect found "a text in quotes" "let a = \"$words\";" &&
    expect found "code behind a raw string" "let a = r#\"{\n}\"#;\nlet a = \"$words\";" &&
    expect found "a comment behind a code block" "/// \`\`\`\n/// a\n/// \`\`\`\n/// $words" &&
    expect passes "a code block" "/// \`\`\`text\n/// $words\n/// \`\`\`" &&
    expect passes "a row of a table" "//! | $words |" &&
    expect passes "an address" "// https://example.net/$wide" &&
    expect passes "a raw string" "let a = r#\"\n$words\n\"#;"
}

case "${1:-}" in
  "") ;;
  --self-test) self_test || exit 1 ;;
  *) echo "usage: scripts/width.sh [--self-test]" >&2; exit 2 ;;
esac
found=$(git ls-files -z '*.rs' 2>/dev/null | xargs -0 -r ls -d 2>/dev/null | { mapfile -t files; wide "${files[@]}"; })
[ -z "$found" ] || { echo "$found"; echo "width: $(wc -l <<<"$found") lines are wider than 100 columns"; exit 1; }
echo "width: no line is wider than 100 columns"
