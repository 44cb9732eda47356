"""`run(members) -> iterator of records`, on whatever machines there are; knows no search."""
