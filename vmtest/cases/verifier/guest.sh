# The kernel's verifier goes through every program of every object; what it had to do is held against
# vmtest/verifier.txt, for a kernel's limit on a busy day is not far from a careless loop. It takes most of a minute.
# timeout: 400
. /guest/lib.sh

biopsy check --programs >programs.json
