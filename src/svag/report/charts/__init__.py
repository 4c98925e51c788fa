"""One picture a module: `table` computes its rows, `chart` draws them and computes nothing."""
