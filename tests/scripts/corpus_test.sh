#!/bin/bash
# corpus_test.sh TRAIN SOURCE - scripts/corpus on two small packages made here: what becomes a conversation, its list of
# sources, that `train` uses its file, and bad input. Nothing is downloaded.
train=$1 source=$2
. "${0%/*}/../cli.sh"
command -v dpkg-deb >/dev/null || { echo "dpkg-deb is missing" && exit 1; }
corpus() { "$source/scripts/corpus" "$@"; }

package() { # package NAME: packs the folder NAME as a Debian package
    mkdir -p "$1/DEBIAN" debs
    printf '%s\n' "Package: $1" 'Version: 1' 'Architecture: all' 'Maintainer: Test <t@localhost>' 'Description: test' \
        >"$1/DEBIAN/control"
    dpkg-deb --root-owner-group -b "$1" "debs/$1_1_all.deb" >/dev/null
}
words() { # words NUMBER PREFIX: so many different words
    seq -f "$2%g" -s ' ' "$1"
}

mkdir -p perl-doc/usr/share/perl/5/pod linux-doc-6.1/usr/share/doc/linux-doc-6.1/Documentation/a/b
{
    printf '=head1 NAME\n\nshort\n\n=head2 A B<bold I<nested>> title\n\n'
    printf 'Text with C<code E<lt> x> and C<< a->b >>. %s\n\n=over 4\n\n=item * point\n\n=back\n\n' "$(words 60 p)"
    printf '=head1 Same\n\n%s\n\n=head1 Same again\n\n%s\n' "$(words 80 s)" "$(words 80 s)"
} >perl-doc/usr/share/perl/5/pod/perlx.pod
{
    printf '=====\nTitle\n=====\n\n%s\n\nSection é\n---------\n\n' "$(words 70 t)"
    for i in 1 2 3; do printf '%s\n\n' "$(words 600 "part${i}x")"; done
} | gzip >linux-doc-6.1/usr/share/doc/linux-doc-6.1/Documentation/a/b/doc.rst.gz
package perl-doc
package linux-doc-6.1

expect 0 'corpus: wrote out.jsonl' corpus --debs debs out.jsonl
python3 - >got <<'PY'
import json
for line in open("out.jsonl", encoding="utf-8"):
    user, answer = json.loads(line)["messages"]
    assert (user["role"], answer["role"]) == ("user", "assistant") and len(answer["content"]) >= 200
    print(user["content"], "|", answer["content"][:24].replace("\n", " "), "|", answer["content"][-14:].replace("\n", " "))
PY
# The short section and the repeated one are left out, the long one is cut at paragraphs, and codes of POD are removed.
diff - got <<'WANT' || fail "other conversations"
perlx: A bold nested title | Text with code < x and a | p59 p60  point
perlx: Same | s1 s2 s3 s4 s5 s6 s7 s8  | 77 s78 s79 s80
doc: Title | t1 t2 t3 t4 t5 t6 t7 t8  | 67 t68 t69 t70
doc: Section é | part1x1 part1x2 part1x3  | x599 part1x600
doc: Section é (part 2) | part2x1 part2x2 part2x3  | x599 part2x600
doc: Section é (part 3) | part3x1 part3x2 part3x3  | x599 part3x600
WANT
grep -qx "perl-doc_1_all.deb  sha256 $(sha256sum <debs/perl-doc_1_all.deb | cut -d' ' -f1)  Artistic or GPL-1+  2 conversations  [0-9]* bytes" \
    out.jsonl.sources || fail "wrong sources: $(cat out.jsonl.sources)"
corpus --debs debs again.jsonl >log && cmp out.jsonl again.jsonl || fail "the same packages give other bytes"

# `train` uses the file of the user's folder, unless --data or PB_DATA name another text.
expect 0 "share/plumb/texts.jsonl" corpus --debs debs
expect 0 "data $dir/share/plumb/texts.jsonl: 6 conversations" "$train" --steps 1 --seq 32
expect 0 'data again.jsonl: 6 conversations' "$train" --steps 1 --seq 32 --data again.jsonl
expect 0 "data $source/data/corpus.jsonl: 170 conversations" env PB_DATA="$source/data" "$train" --steps 1 --seq 32

# Bad input writes nothing, and keeps what is there.
mkdir none
expect 1 'none has none of the packages perl-doc' corpus --debs none new.jsonl
head -c 100 debs/perl-doc_1_all.deb >none/perl-doc_1_all.deb
expect 1 'none/perl-doc_1_all.deb cannot be unpacked' corpus --debs none out.jsonl
expect 1 "corpus: $dir/out.jsonl: File exists" corpus --debs debs out.jsonl/new.jsonl
expect 1 'corpus: none: Is a directory' corpus --debs debs none
rm -r perl-doc/usr && mkdir perl-doc/usr && package perl-doc
expect 1 'has no documents where they are expected' corpus --debs debs out.jsonl
cmp out.jsonl again.jsonl || fail "a failure changed the file"
[[ ! -e new.jsonl && ! -e out.jsonl.part ]] || fail "half a file is left: $(ls)"
expect 2 'unrecognized arguments' corpus --no-such-option
printf '#!/bin/sh\necho "E: Unable to locate package perl-doc" >&2\nexit 100\n' >apt-get && chmod +x apt-get
expect 1 'E: Unable to locate package perl-doc' env PATH="$dir:$PATH" "$source/scripts/corpus" new.jsonl
exit $((failures > 0))
